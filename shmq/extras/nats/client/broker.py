"""The queues, exchanges and streams of a namespace of a cluster."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, cast

from shmq import api, errors
from shmq.api.names import check_name, is_reply_name, reply_name
from shmq.api.options import IfDifferent, QueueOptions
from shmq.api.stream_options import StreamOptions
from shmq.client.remote.address import Tls
from shmq.client.shared.broker import BaseBroker, check_if_different, given_of, same
from shmq.client.shared.table import check_table
from shmq.extras.nats.client.address import ClusterTarget
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.exchange import Exchanges, NatsExchange
from shmq.extras.nats.client.jetstream import delete_stream
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.queue import NatsQueue
from shmq.extras.nats.client.queue_layout import QueueLayout, check_possible, options_of
from shmq.extras.nats.client.queue_port import NatsQueuePort
from shmq.extras.nats.client.queue_state import summary_of
from shmq.extras.nats.client.reply_queue import NatsReplyQueue, NatsReplyTarget
from shmq.extras.nats.client.schemas import Schemas
from shmq.extras.nats.client.settlement import ensure_queue
from shmq.extras.nats.client.stream import NatsStream
from shmq.extras.nats.client.stream import check_possible as check_stream
from shmq.extras.nats.client.streams import Streams
from shmq.extras.nats.client.streams import summary_of as stream_summary
from shmq.model.routing.table import Table, check_exchange

if TYPE_CHECKING:
    from shmq.api.keywords import EnsureStreamKeywords, QueueKeywords, StreamKeywords
    from shmq.api.table import TableDurability


class NatsBroker(BaseBroker):
    """A namespace of a cluster. It connects when it is created."""

    def __init__(self, target: ClusterTarget) -> None:
        super().__init__()
        self._closed = False
        self.connection = ClusterConnection(target)
        self.definitions = Definitions(self.connection)
        self.exchanges = Exchanges(self.connection, self.definitions)
        self._schemas = Schemas(self.definitions)
        self.streams = Streams(self.connection, self.definitions)
        self._handles: weakref.WeakSet[Any] = weakref.WeakSet()
        try:
            self.connection.run(self.connection.api("INFO"))
        except ApiError as error:
            self.connection.close()
            raise errors.Unsupported(f"cluster {self.connection.url}: {error}") from error
        except BaseException:
            self.connection.close()
            raise

    @classmethod
    def connect(
        cls,
        url: str,
        token: str | None = None,
        tls: Tls = None,
        connect_timeout: float = 5.0,
        request_timeout: float = 30.0,
        wait_for_acks: bool = True,
    ) -> NatsBroker:
        """Connect to the cluster at ``url``. Raises what :func:`shmq.connect` raises."""
        return cls(
            ClusterTarget.of(url, token, tls, connect_timeout, request_timeout, wait_for_acks)
        )

    @property
    def url(self) -> str:
        """The cluster's URL, without any secret."""
        return self.connection.url

    @property
    def server(self) -> str:
        """The version of the server that it is connected to."""
        return self.connection.server

    @property
    def namespace(self) -> str:
        return self.connection.namespace

    # ---- queues ----

    def create_queue(self, name: str, **options: Unpack[QueueKeywords]) -> NatsQueue:
        self._check_open()
        wanted = QueueOptions.for_queue(check_name(name), options)
        check_possible(self.connection, name, wanted)
        queue = self._opened(name, self._make_queue(name, wanted))
        if differences := wanted.differences(queue.options):
            queue.close()
            raise errors.QueueExists.of(name, differences)
        return queue

    def _make_queue(self, name: str, wanted: QueueOptions) -> Mapping[str, Any]:
        making = ensure_queue(self.connection, self.definitions, name, wanted)
        return self.connection.run(making)

    def _opened(self, name: str, definition: Mapping[str, Any]) -> NatsQueue:
        try:
            queue = NatsQueue(NatsQueuePort(self.connection, self.definitions, name, definition))
        except (KeyError, TypeError, ValueError) as error:
            raise errors.ServerError(
                f"the definition of queue {name!r} of {self.url} cannot be read: {error}"
            ) from error
        self._handles.add(queue)
        return queue

    def queue(self, name: str) -> NatsQueue:
        self._check_open()
        found = self.connection.run(self.definitions.get(kv_key("queue", check_name(name))))
        if found is None:
            raise self._no_queue(name)
        return self._opened(name, found.value)

    def _no_queue(self, name: str) -> errors.NoSuchQueue:
        return errors.NoSuchQueue(
            f"there is no queue {name!r} in namespace {self.namespace!r} of {self.url}: create it "
            f"first, or see `shmq list`"
        )

    def put_target(self, name: str) -> api.Queue:
        self._check_open()
        if is_reply_name(check_name(name)):
            return cast("api.Queue", NatsReplyTarget(self.connection, name))
        return self.queue(name)

    def ensure_queue(
        self, name: str, *, if_different: IfDifferent = "accept", **options: Unpack[QueueKeywords]
    ) -> NatsQueue:
        self._check_open()
        check_if_different(if_different)
        wanted = QueueOptions.for_queue(check_name(name), options)
        check_possible(self.connection, name, wanted)
        made = self._make_queue(name, wanted)
        return same(self._opened(name, made), options, if_different)

    def delete_queue(self, name: str) -> None:
        self._check_open()
        if not self.connection.run(self._delete_queue(check_name(name))):
            raise self._no_queue(name)

    async def _delete_queue(self, name: str) -> bool:
        key = kv_key("queue", name)
        found = await self.definitions.get(key)
        if found is None:
            return False
        await self.definitions.remove(key)
        await self.exchanges.forget("queue", name)
        await self.definitions.remove(f"{kv_key('uncounted', name)}.>")
        if await self.definitions.get(kv_key("stream", name)) is None:
            await self.definitions.remove(kv_key("schema", name))
        layout = QueueLayout(self.connection, name, options_of(found.value))
        await delete_stream(self.connection, layout.stream)
        return True

    def list_queues(self) -> list[api.QueueSummary]:
        self._check_open()
        found = []
        for name in self.queue_names():
            try:
                with self.queue(name) as queue:
                    found.append(self.connection.run(summary_of(queue.port)))
            except (errors.NoSuchQueue, errors.QueueDeleted):
                continue
            except errors.ShmqError as error:
                found.append(
                    api.QueueSummary(
                        name=name, depth=0, delayed=0, in_flight=0, capacity=0, problem=str(error)
                    )
                )
        return found

    def queue_names(self) -> list[str]:
        self._check_open()
        return self.connection.run(self.definitions.names("queue"))

    # ---- streams ----

    def create_stream(
        self, name: str, partitions: int = 4, **options: Unpack[StreamKeywords]
    ) -> NatsStream:
        self._check_open()
        check_name(name, "stream")
        wanted = StreamOptions.given({"partitions": partitions, **options})
        check_stream(self.connection, name, wanted)
        stream = self._kept(self.streams.make(name, wanted))
        if differences := wanted.differences(stream.options):
            stream.close()
            raise errors.StreamExists.of(name, differences)
        return stream

    def stream(self, name: str) -> NatsStream:
        self._check_open()
        return self._kept(self.streams.open(check_name(name, "stream")))

    def ensure_stream(
        self,
        name: str,
        *,
        if_different: IfDifferent = "accept",
        **options: Unpack[EnsureStreamKeywords],
    ) -> NatsStream:
        self._check_open()
        check_if_different(if_different)
        check_name(name, "stream")
        wanted = StreamOptions.given(options)
        check_stream(self.connection, name, wanted)
        return same(self._kept(self.streams.make(name, wanted)), options, if_different)

    def delete_stream(self, name: str) -> None:
        self._check_open()
        check_name(name, "stream")
        if not self.connection.run(self.streams.delete(name)):
            raise self.streams.missing(name)
        self.connection.run(self.exchanges.forget("stream", name))

    def list_streams(self) -> list[api.StreamSummary]:
        self._check_open()
        found = []
        for name in self.streams.names():
            with contextlib.suppress(errors.NoSuchStream, errors.StreamDeleted):
                found.append(stream_summary(self.streams.open(name)))
        return found

    def _kept(self, stream: NatsStream) -> NatsStream:
        """The handle, which is closed with the broker."""
        self._handles.add(stream)
        return stream

    # ---- exchanges ----

    def create_exchange(
        self, name: str, kind: api.ExchangeKind = "direct", alternate: str | None = None
    ) -> NatsExchange:
        return self._made_exchange(name, kind, alternate, ensure=False)

    def _made_exchange(
        self, name: str, kind: str, alternate: str | None, *, ensure: bool
    ) -> NatsExchange:
        operation = check_exchange(name, kind, alternate)
        self._check_open()

        def is_new(table: Table) -> bool:
            if not ensure:
                table.check_kind(name, kind, alternate)
            return not table.has(name)

        self.connection.run(self.exchanges.change(operation, is_new))
        return self.exchange(name)

    def exchange(self, name: str) -> NatsExchange:
        check_name(name, "exchange")
        self._check_open()
        table, _ = self.connection.run(self.exchanges.table())
        return NatsExchange(self, table.summary(name))

    def ensure_exchange(
        self,
        name: str,
        kind: api.ExchangeKind | None = None,
        alternate: str | None = None,
        *,
        if_different: IfDifferent = "accept",
    ) -> NatsExchange:
        check_if_different(if_different)
        made = self._made_exchange(name, kind or "direct", alternate, ensure=True)
        return same(made, given_of(kind, alternate), if_different)

    def delete_exchange(self, name: str) -> None:
        check_name(name, "exchange")
        self._check_open()
        self.connection.run(
            self.exchanges.change(["delete", name], lambda table: bool(table.summary(name)))
        )

    def list_exchanges(self) -> list[api.ExchangeSummary]:
        self._check_open()
        return self.connection.run(self.exchanges.table())[0].summaries()

    # ---- schemas ----

    def _set_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        self._check_open()
        return self.connection.run(self._schemas.set(check_name(name), schema, rule))

    def _check_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        self._check_open()
        self.connection.run(self._schemas.check(check_name(name), schema, rule))

    def schemas(self, name: str) -> list[api.SchemaVersion]:
        self._check_open()
        return self.connection.run(self._schemas.get(check_name(name)))

    # ---- tables ----

    def ensure_table(
        self, name: str, durability: TableDurability = "memory", *, max_bytes: int | None = None
    ) -> api.Table:
        check_table(durability, max_bytes)
        self._no_tables(f"table {name!r}")

    def table(self, name: str) -> api.Table:
        self._no_tables(f"table {name!r}")

    def delete_table(self, name: str) -> None:
        self._no_tables(f"table {name!r}")

    def list_tables(self) -> list[str]:
        self._check_open()
        return []

    def _no_tables(self, what: str) -> NoReturn:
        self._check_open()
        raise errors.Unsupported(
            f"{what} is not possible on a cluster: a table is of one host; keep such values in a "
            f"KV bucket of the cluster, with a client of NATS"
        )

    # ---- the reply queues ----

    def _make_reply_queue(self) -> api.Queue:
        return cast("api.Queue", NatsReplyQueue(self.connection, reply_name()))

    def _remove_reply_queue(self, queue: api.Queue) -> None:
        queue.close()

    # ---- the end ----

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ShmqError(f"this broker of {self.url} is closed")

    def close(self) -> None:
        if self._closed:
            return
        self._close_replies()
        self._closed = True  # before its handles: it ends serve() in another thread
        for handle in list(self._handles):
            handle.close()
        self.connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return NatsBroker, (self.connection.target,)

    def __repr__(self) -> str:
        return f"<NatsBroker of {self.url}>"
