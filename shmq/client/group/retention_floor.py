"""What a group has not done is kept, in a stream whose appends wait for room.

The group has a hold of each partition, known by its id and nobody's process: it stays until
the group is deleted. One is made under the registry lock, as two of them would keep records
for ever; it moves with every commit. A death between the two leaves it behind, where the
next commit, or the next member that takes the partition, finds it.
"""

from __future__ import annotations

import contextlib

from shmq.errors import OffsetOutOfRange, SegmentError, StreamDeleted
from shmq.namespace import group_files
from shmq.namespace.namespace import Namespace
from shmq.native import _stream

__all__ = ["Floors", "keep_new"]


class Floors:
    """The holds of one group, in these partitions."""

    def __init__(self, namespace: Namespace, logs: list[_stream.Partition], group_id: int) -> None:
        self._namespace = namespace
        self._logs = logs
        self._tag = group_id
        self._known: dict[int, int] = {}

    def keep(self, partition: int, offset: int) -> None:
        """Keep the records from ``offset`` on; what was let go of stays so."""
        hold = self._known.get(partition)
        if hold is None:
            hold = self._find(partition)
        if hold is None:
            with self._namespace.locked():
                hold = self._find(partition)
                if hold is None:
                    hold = self._make(partition, offset)
        self._known[partition] = hold
        self._logs[partition].move(hold, offset)

    def keep_from(self, partition: int, offset: int) -> None:
        """As `keep`, from an earlier record, too, as far as there still is one."""
        with self._namespace.locked():
            self._drop(partition)
            self.keep(partition, offset)

    def drop(self) -> None:
        """Keep nothing any more: the group is deleted."""
        with self._namespace.locked():
            for partition in range(len(self._logs)):
                self._drop(partition)

    def _drop(self, partition: int) -> None:
        self._known.pop(partition, None)
        while (hold := self._find(partition)) is not None:
            self._logs[partition].drop(hold)

    def _make(self, partition: int, offset: int) -> int:
        log = self._logs[partition]
        while True:
            try:
                return log.hold(offset, 0, self._tag)
            except OffsetOutOfRange as error:
                if offset in {error.earliest, error.latest}:
                    raise
                offset = error.earliest if offset < error.earliest else error.latest

    def _find(self, partition: int) -> int | None:
        for number, owner, tag, pins in self._logs[partition].holders():
            if tag == self._tag and not owner and not pins:
                return number
        return None


def keep_new(
    namespace: Namespace, stream_id: int, logs: list[_stream.Partition], came: int
) -> None:
    """All groups of the stream keep what comes into the last ``came`` partitions.

    A group that cannot be used keeps nothing. Needs the registry lock.
    """
    for name in group_files.group_names(namespace, stream_id):
        with contextlib.suppress(SegmentError, StreamDeleted):
            group_state = group_files.look_at(namespace, stream_id, name)
            if group_state is not None:
                floors = Floors(namespace, logs, group_state.options["group_id"])
                for partition in range(len(logs) - came, len(logs)):
                    floors.keep(partition, 0)
