"""The queues of a namespace of a cluster: made, found and deleted; it has no tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, cast

from shmq import api, errors
from shmq.api.names import is_reply_name
from shmq.api.options import QueueOptions
from shmq.client.ports.broker import CollectionPort
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.exchange import Exchanges
from shmq.extras.nats.client.jetstream import delete_stream
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.queue import NatsQueue
from shmq.extras.nats.client.queue_layout import QueueLayout, check_possible, options_of
from shmq.extras.nats.client.queue_port import NatsQueuePort
from shmq.extras.nats.client.queue_state import summary_of
from shmq.extras.nats.client.reply_queue import NatsReplyTarget
from shmq.extras.nats.client.settlement import ensure_queue


class QueueCollection(CollectionPort):
    """The queues of one namespace."""

    def __init__(
        self, connection: ClusterConnection, definitions: Definitions, exchanges: Exchanges
    ) -> None:
        self._connection = connection
        self._definitions = definitions
        self._exchanges = exchanges

    def make(
        self, name: str, wanted: QueueOptions, given: Mapping[str, Any], exact: bool
    ) -> NatsQueue:
        check_possible(self._connection, name, wanted)
        alone = "allow_same_name" not in given
        making = ensure_queue(self._connection, self._definitions, name, wanted, alone)
        queue = self._queue_of(name, self._connection.run(making))
        if exact and (differences := wanted.differences(queue.options)):
            queue.close()
            raise errors.QueueExists.of(name, differences)
        return queue

    def _queue_of(self, name: str, definition: Mapping[str, Any]) -> NatsQueue:
        try:
            return NatsQueue(NatsQueuePort(self._connection, self._definitions, name, definition))
        except (KeyError, TypeError, ValueError) as error:
            raise errors.ServerError(
                f"the definition of queue {name!r} of {self._connection.url} cannot be read: "
                f"{error}"
            ) from error

    def open(self, name: str, to_put: bool = False) -> NatsQueue:
        if to_put and is_reply_name(name):
            return cast("NatsQueue", NatsReplyTarget(self._connection, name))
        found = self._connection.run(self._definitions.get(kv_key("queue", name)))
        if found is None:
            raise self._no_queue(name)
        return self._queue_of(name, found.value)

    def _no_queue(self, name: str) -> errors.NoSuchQueue:
        return errors.NoSuchQueue.of(name, self._connection.where)

    def alter(self, name: str, given: Mapping[str, Any]) -> NoReturn:
        del given
        raise errors.Unsupported(
            f"altering queue {name!r} is not possible on a cluster: its servers have made streams "
            f"by its options; create another queue, and delete this one once it is drained"
        )

    def delete(self, name: str) -> None:
        if not self._connection.run(self._delete_queue(name)):
            raise self._no_queue(name)

    async def _delete_queue(self, name: str) -> bool:
        key = kv_key("queue", name)
        found = await self._definitions.get(key)
        if found is None:
            return False
        await self._definitions.remove(key)
        await self._exchanges.forget("queue", name)
        await self._definitions.remove(f"{kv_key('claim', name)}.>")
        if await self._definitions.get(kv_key("stream", name)) is None:
            await self._definitions.remove(kv_key("schema", name))
        layout = QueueLayout(self._connection, name, options_of(found.value))
        await delete_stream(self._connection, layout.stream)
        return True

    def summaries(self) -> list[api.QueueSummary]:
        found = []
        for name in self.names():
            try:
                with self.open(name) as queue:
                    found.append(self._connection.run(summary_of(queue.port)))
            except (errors.NoSuchQueue, errors.QueueDeleted):
                continue
            except errors.ShmqError as error:
                found.append(
                    api.QueueSummary(
                        name=name, depth=0, delayed=0, in_flight=0, capacity=0, problem=str(error)
                    )
                )
        return found

    def names(self) -> list[str]:
        return self._connection.run(self._definitions.names("queue"))


class NoTables(CollectionPort):
    """The tables of a cluster: there are none."""

    def make(self, name: str, wanted: Any, given: Mapping[str, Any], exact: bool) -> NoReturn:
        del wanted, given, exact
        self.open(name)

    def open(self, name: str, to_put: bool = False) -> NoReturn:
        del to_put
        raise errors.Unsupported(
            f"table {name!r} is not possible on a cluster: a table is of one host; keep such "
            f"values in a KV bucket of the cluster, with a client of NATS"
        )

    def delete(self, name: str) -> NoReturn:
        self.open(name)

    def summaries(self) -> list[str]:
        return []
