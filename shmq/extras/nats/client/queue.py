"""A queue of a cluster."""

from __future__ import annotations

from typing import Any

from shmq import api, errors
from shmq.client.handles.queue import QueueHandle
from shmq.client.ports.steps import Steps
from shmq.client.shared.pickling import reduce
from shmq.extras.nats.client.address import ClusterTarget
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.message import NatsMessage
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.queue_port import NatsQueuePort


class NatsQueue(QueueHandle):
    """A queue of a cluster. Threads, tasks and the children of forks may use a handle."""

    port: NatsQueuePort

    def __init__(self, port: NatsQueuePort) -> None:
        super().__init__(port)
        port.handle = self

    @property
    def connection(self) -> ClusterConnection:
        """The connection to the cluster."""
        return self.port.connection

    def keep_lease(self, message: NatsMessage) -> Steps[None]:
        """Extend the message's lease until it is settled, or return it. Raises LeaseExpired."""
        return self.port.keep_lease(message)

    def count_claimed(self) -> int:
        """How many messages are claimed: see `QueueState.count_claimed`."""
        return self.port.run(self.port.state.count_claimed())

    def bulk(self) -> api.BulkQueue:
        self.port.refuse("bulk()", "its servers keep messages, not columns of them")

    def staged_publisher(self, publisher: str) -> api.StagedPublisher:
        self.port.refuse(
            f"staged_publisher({publisher!r})", "a batch there has at most 1,000 messages"
        )

    def fileno(self) -> int:
        self.port.refuse("fileno()", "its servers tell of a message by handing it out: use aget")

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, attach, self.connection.target, self.name)


def attach(target: ClusterTarget, name: str) -> NatsQueue:
    """Attach to an existing queue with a connection of its own. Raises NoSuchQueue."""
    connection = ClusterConnection(target)
    try:
        definitions = Definitions(connection)
        found = connection.run(definitions.get(kv_key("queue", name)))
        if found is None:
            raise errors.NoSuchQueue.of(name, connection.where)
        port = NatsQueuePort(connection, definitions, name, found.value, owns_connection=True)
        return NatsQueue(port)
    except BaseException:
        connection.close()
        raise
