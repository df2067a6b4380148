"""The queues, exchanges and streams of a namespace of a cluster."""

from __future__ import annotations

from typing import Any, cast

from shmq import api, errors
from shmq.api.names import reply_name
from shmq.client.handles.broker import BrokerHandle
from shmq.client.ports.broker import CollectionPort, Kind
from shmq.client.remote.address import Tls
from shmq.client.shared.pickling import reduce
from shmq.extras.nats.client.address import ClusterTarget
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.exchange import ExchangeCollection, Exchanges, NatsExchange
from shmq.extras.nats.client.queue import NatsQueue
from shmq.extras.nats.client.queues import NoTables, QueueCollection
from shmq.extras.nats.client.reply_queue import NatsReplyQueue
from shmq.extras.nats.client.schemas import Schemas
from shmq.extras.nats.client.stream import NatsStream
from shmq.extras.nats.client.streams import StreamCollection


class NatsBroker(BrokerHandle[NatsQueue, NatsStream, NatsExchange, api.Table]):
    """A namespace of a cluster. It connects when it is created."""

    #: Long enough for an election, which takes 4 s, between two extensions; see `Lease`.
    lock_lease = 10.0

    def __init__(self, target: ClusterTarget) -> None:
        super().__init__()
        self.connection = ClusterConnection(target)
        self.definitions = Definitions(self.connection)
        self.exchanges = Exchanges(self.connection, self.definitions)
        self._schemas = Schemas(self.definitions, self.connection.where)
        self.streams = StreamCollection(self.connection, self.definitions, self.exchanges)
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

    # ---- what has a name ----

    def collection(self, kind: Kind) -> CollectionPort:
        if kind == "queue":
            return QueueCollection(self.connection, self.definitions, self.exchanges)
        if kind == "stream":
            return self.streams
        return ExchangeCollection(self) if kind == "exchange" else NoTables()

    # ---- schemas ----

    def add_schema(
        self, name: str, schema: dict[str, Any], rule: str | None, *, only_check: bool = False
    ) -> int:
        if only_check:
            self.connection.run(self._schemas.check(name, schema, rule))
            return 0
        return self.connection.run(self._schemas.set(name, schema, rule))

    def find_schemas(self, name: str) -> list[api.SchemaVersion]:
        return self.connection.run(self._schemas.get(name))

    # ---- the reply queues ----

    @property
    def _request_timeout(self) -> float:
        return self.connection.target.request_timeout

    def _make_reply_queue(self) -> api.Queue:
        return cast("api.Queue", NatsReplyQueue(self.connection, reply_name()))

    def _remove_reply_queue(self, queue: api.Queue) -> None:
        queue.close()

    # ---- the end ----

    def _check_open(self) -> None:
        if self._closed:
            raise errors.closed_broker()

    def disconnect(self) -> None:
        self.connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, NatsBroker, self.connection.target)

    def __repr__(self) -> str:
        return f"<NatsBroker of {self.url}>"
