"""A queue as streams and consumers of JetStream: what is made for it, and what is refused."""

from __future__ import annotations

import asyncio
import secrets
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from shmq.api.options import QueueOptions
from shmq.api.options import options_of as rows_of
from shmq.errors import Unsupported
from shmq.extras.nats.client import names
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.jetstream import create_consumer, create_stream
from shmq.native import _clock as time

#: How many partitions the groups of a queue are spread over.
PARTITIONS: Final = 16
#: The duplicate window of a queue without one, in seconds: a put that is repeated needs it.
_WINDOW: Final = 120.0
_MOST_WAITING: Final = 8192
_NS: Final = 10**9


def check_possible(connection: ClusterConnection, name: str, options: QueueOptions) -> None:
    """Raise Unsupported for options that JetStream cannot keep."""
    if options.confirm == "disk":
        check_synced(connection, f"queue {name!r}")
    for key, row in rows_of(QueueOptions).items():
        if row.not_of_cluster and getattr(options, key):
            raise Unsupported(
                f"queue {name!r}: {key}={getattr(options, key)!r} is not possible on a cluster "
                f"({row.not_of_cluster})"
            )
    if 0 < options.dedupe_window < 0.1:
        raise Unsupported(
            f"queue {name!r}: dedupe_window={options.dedupe_window} is below 0.1 s, which is the "
            f"shortest of a cluster"
        )


def check_synced(connection: ClusterConnection, what: str) -> None:
    """Raise Unsupported for ``confirm="disk"`` unless the operator says that servers sync."""
    if not connection.target.address.synced:
        raise Unsupported(
            f"{what}: confirm='disk' is not possible on a cluster that syncs every two minutes: "
            f"set sync_interval: always on each server, and say so with ?sync=always in the URL"
        )


def new_definition(options: QueueOptions) -> dict[str, Any]:
    """The definition of a new queue."""
    return {"options": options.as_dict(), "identity": secrets.randbits(63) | 1}


def partition_of(group: str) -> int:
    """The partition of a group."""
    return zlib.crc32(group.encode()) % PARTITIONS


class QueueLayout:
    """The stream and the consumers of one queue."""

    def __init__(self, connection: ClusterConnection, name: str, options: QueueOptions) -> None:
        self.connection = connection
        self.name = name
        self.options = options
        self.namespace = connection.namespace
        self.stream = names.queue_stream(self.namespace, name)
        #: The subject that announces that the queue has consumers of groups from now on.
        self.control_subject = names.control_subject(self.namespace, name)
        #: How long ids of messages are remembered, in seconds.
        self.window = options.dedupe_window or _WINDOW
        self.last_puts = LastPuts(connection.url, self.stream)
        #: The consumers of the priorities, the highest first.
        self.priority_consumers = [
            names.priority_consumer(k) for k in reversed(range(options.priorities))
        ]

    def stream_config(self) -> dict[str, Any]:
        """What the stream is made with."""
        o = self.options
        return {
            "name": self.stream,
            "subjects": [names.queue_subjects(self.namespace, self.name)],
            "retention": "workqueue",
            "storage": "file",
            "num_replicas": self.connection.replicas,
            "discard": "old" if o.overflow == "drop-oldest" else "new",
            "max_msgs": o.capacity,
            "max_bytes": o.arena_bytes,
            "duplicate_window": int(self.window * _NS),
            "allow_direct": True,
            "allow_msg_ttl": True,
            "allow_msg_schedules": True,
            "allow_atomic": True,
        }

    def consumer_config(self, name: str) -> dict[str, Any]:
        """What the consumer of a priority, or of a partition of groups, is made with."""
        number = int(name[1:])
        of_group = name.startswith("g")
        subject = names.group_subject if of_group else names.priority_subject
        return {
            "durable_name": name,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": max(1_000_000, int(self.options.visibility_timeout * _NS)),
            "max_deliver": -1,
            "max_ack_pending": 1 if of_group else -1,
            "max_waiting": _MOST_WAITING,
            "filter_subject": subject(self.namespace, self.name, number),
            "replay_policy": "instant",
        }

    @property
    def group_consumers(self) -> list[str]:
        """The consumers of the partitions of groups."""
        return [names.group_consumer(k) for k in range(PARTITIONS)]

    async def make(self) -> None:
        """Make the stream and the consumers of the priorities, unless they are there."""
        await create_stream(self.connection, self.stream_config())
        await self._make_consumers(self.priority_consumers)

    async def make_groups(self) -> None:
        """Make the consumers of the partitions of groups, and tell those who wait."""
        await self._make_consumers(self.group_consumers)
        client = await self.connection.client()
        await client.publish(self.control_subject, b"")

    async def _make_consumers(self, consumers: list[str]) -> None:
        await asyncio.gather(
            *(
                create_consumer(self.connection, self.stream, self.consumer_config(name))
                for name in consumers
            )
        )

    def subject(self, priority: int, group: str | None) -> str:
        """The subject of a message."""
        if group is not None:
            return names.group_subject(self.namespace, self.name, partition_of(group))
        return names.priority_subject(self.namespace, self.name, priority)

    def definition_key(self) -> str:
        """The key of the queue's definition."""
        return names.kv_key("queue", self.name)


def options_of(definition: Mapping[str, Any]) -> QueueOptions:
    """The options in a definition. Raises KeyError and TypeError for one that is none."""
    rows = rows_of(QueueOptions)
    given: dict[str, Any] = {
        key: float(value) if rows[key].kind == "seconds" and value is not None else value
        for key, value in definition["options"].items()
    }
    return QueueOptions(**given)


#: After what time a consumer has seen each message, in seconds.
_SEEN_AFTER: Final = 5.0
#: The shortest time between two notifications of a consumer, in seconds.
_JUST: Final = 0.05


class LastPuts:
    """The puts to one queue, by all handles of this process. Used in the process's loop."""

    _of_process: ClassVar[dict[tuple[str, str], dict[str, tuple[int, float]]]] = {}

    def __init__(self, url: str, stream: str) -> None:
        #: The sequence number of the last put, and its time, by consumer.
        self._last = self._of_process.setdefault((url, stream), {})

    def note(self, subject: str, sequence: int) -> None:
        """A message was put; the last part of its subject is the name of its consumer."""
        self._last[subject.rpartition(".")[2]] = sequence, time.monotonic()

    def is_unseen(self, consumer: str) -> bool:
        """Whether the consumer may not know yet of the last put."""
        _, at = self._last.get(consumer, (0, 0.0))
        if at and time.monotonic() - at > _SEEN_AFTER:
            del self._last[consumer]
            return False
        return at > 0

    def is_just_put(self, consumer: str) -> bool:
        """Whether the consumer may be notified of the last put at this moment."""
        _, at = self._last.get(consumer, (0, -_JUST))
        return time.monotonic() - at < _JUST

    @property
    def of_groups(self) -> bool:
        """Whether consumers of groups may not know yet of a put."""
        return any(consumer.startswith("g") for consumer in self._last)

    def seen(self, consumer: str, sequence: int) -> None:
        """The consumer has delivered the message of that number."""
        if self._last.get(consumer, (sequence + 1, 0.0))[0] <= sequence:
            del self._last[consumer]

    def forget(self, consumer: str) -> None:
        """The consumer was given the time to see the last put."""
        self._last.pop(consumer, None)
