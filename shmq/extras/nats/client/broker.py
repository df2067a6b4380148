"""The queues, exchanges and streams of a namespace of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from shmq import api, errors
from shmq.api.names import is_reply_name, reply_name
from shmq.api.options import QueueOptions
from shmq.api.stream_options import StreamOptions
from shmq.client.handles.broker import BrokerHandle
from shmq.client.remote.address import Tls
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
    from shmq.api.table import TableDurability


class NatsBroker(BrokerHandle[NatsQueue, NatsStream, NatsExchange, api.Table]):
    """A namespace of a cluster. It connects when it is created."""

    def __init__(self, target: ClusterTarget) -> None:
        super().__init__()
        self.connection = ClusterConnection(target)
        self.definitions = Definitions(self.connection)
        self.exchanges = Exchanges(self.connection, self.definitions)
        self._schemas = Schemas(self.definitions)
        self.streams = Streams(self.connection, self.definitions)
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

    def make_queue(
        self, name: str, wanted: QueueOptions, given: Mapping[str, Any], exact: bool
    ) -> NatsQueue:
        del given
        check_possible(self.connection, name, wanted)
        making = ensure_queue(self.connection, self.definitions, name, wanted)
        queue = self._queue_of(name, self.connection.run(making))
        if exact and (differences := wanted.differences(queue.options)):
            queue.close()
            raise errors.QueueExists.of(name, differences)
        return queue

    def _queue_of(self, name: str, definition: Mapping[str, Any]) -> NatsQueue:
        try:
            return NatsQueue(NatsQueuePort(self.connection, self.definitions, name, definition))
        except (KeyError, TypeError, ValueError) as error:
            raise errors.ServerError(
                f"the definition of queue {name!r} of {self.url} cannot be read: {error}"
            ) from error

    def open_queue(self, name: str, to_put: bool) -> NatsQueue:
        if to_put and is_reply_name(name):
            return cast("NatsQueue", NatsReplyTarget(self.connection, name))
        found = self.connection.run(self.definitions.get(kv_key("queue", name)))
        if found is None:
            raise self._no_queue(name)
        return self._queue_of(name, found.value)

    def _no_queue(self, name: str) -> errors.NoSuchQueue:
        return errors.NoSuchQueue.of(name, f"in namespace {self.namespace!r} of {self.url}")

    def remove_queue(self, name: str) -> None:
        if not self.connection.run(self._delete_queue(name)):
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

    def summarize_queues(self) -> list[api.QueueSummary]:
        found = []
        for name in self.find_queue_names():
            try:
                with self.open_queue(name, False) as queue:
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

    def find_queue_names(self) -> list[str]:
        return self.connection.run(self.definitions.names("queue"))

    # ---- streams ----

    def make_stream(
        self, name: str, wanted: StreamOptions, given: Mapping[str, Any], exact: bool
    ) -> NatsStream:
        del given
        check_stream(self.connection, name, wanted)
        stream = self.streams.make(name, wanted)
        if exact and (differences := wanted.differences(stream.options)):
            stream.close()
            raise errors.StreamExists.of(name, differences)
        return stream

    def open_stream(self, name: str) -> NatsStream:
        return self.streams.open(name)

    def remove_stream(self, name: str) -> None:
        if not self.connection.run(self.streams.delete(name)):
            raise self.streams.missing(name)
        self.connection.run(self.exchanges.forget("stream", name))

    def summarize_streams(self) -> list[api.StreamSummary]:
        found = []
        for name in self.streams.names():
            with contextlib.suppress(errors.NoSuchStream, errors.StreamDeleted):
                found.append(stream_summary(self.streams.open(name)))
        return found

    # ---- exchanges ----

    def make_exchange(
        self, name: str, kind: api.ExchangeKind, alternate: str | None, exact: bool
    ) -> NatsExchange:
        def is_new(table: Table) -> bool:
            if exact:
                table.check_kind(name, kind, alternate)
            return not table.has(name)

        operation = check_exchange(name, kind, alternate)
        self.connection.run(self.exchanges.change(operation, is_new))
        return self.open_exchange(name)

    def open_exchange(self, name: str) -> NatsExchange:
        table, _ = self.connection.run(self.exchanges.table())
        return NatsExchange(self, table.summary(name))

    def remove_exchange(self, name: str) -> None:
        self.connection.run(
            self.exchanges.change(["delete", name], lambda table: bool(table.summary(name)))
        )

    def summarize_exchanges(self) -> list[api.ExchangeSummary]:
        return self.connection.run(self.exchanges.table())[0].summaries()

    # ---- schemas ----

    def add_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        return self.connection.run(self._schemas.set(name, schema, rule))

    def test_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        self.connection.run(self._schemas.check(name, schema, rule))

    def find_schemas(self, name: str) -> list[api.SchemaVersion]:
        return self.connection.run(self._schemas.get(name))

    # ---- tables ----

    def make_table(
        self, name: str, durability: TableDurability, max_bytes: int | None
    ) -> api.Table:
        del durability, max_bytes
        self._no_tables(f"table {name!r}")

    def open_table(self, name: str) -> api.Table:
        self._no_tables(f"table {name!r}")

    def remove_table(self, name: str) -> None:
        self._no_tables(f"table {name!r}")

    def find_table_names(self) -> list[str]:
        return []

    def _no_tables(self, what: str) -> NoReturn:
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

    def disconnect(self) -> None:
        self.connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return NatsBroker, (self.connection.target,)

    def __repr__(self) -> str:
        return f"<NatsBroker of {self.url}>"
