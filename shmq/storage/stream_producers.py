"""What a partition's files tell of its producers, so that what one repeats is not there twice.

Every record bears its producer's number and its sequence number. When a segment ends, what the
records up to there come to is written to ``producers.dmsq``: so no more than what came since
has to be looked through, and old segments may go.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

from shmq.errors import DamagedFile, FileError
from shmq.storage.disk import Disk
from shmq.storage.file_header import STREAM_PRODUCERS
from shmq.storage.map_file import read_map, write_map
from shmq.storage.stream_identity import StreamIdentity
from shmq.storage.stream_paths import PRODUCERS, UNFINISHED_PRODUCERS, bases
from shmq.storage.stream_segment import StreamSegment

__all__ = ["Producers", "note_producers", "producers_before"]

#: By producer: the sequence number and the offset of its last records, and how many follow
#: each other.
Producers = dict[int, tuple[int, int, int]]

#: As many as a partition in shared memory remembers: SHMQ_PRODUCERS.
_MOST: Final = 4096
#: Where nothing was written yet, so many segments are looked through.
_SEGMENTS: Final = 2


def producers_before(disk: Disk, until: int) -> Producers:
    """The producers of the partition with the directory ``disk``, by its records before ``until``.

    What cannot be read is left out, with all before it: a producer is not to be refused for what
    is missing. Raises OSError.
    """
    begin, found = _noted(disk, until)
    there = bases(disk.names())
    if begin is None:
        there = there[-_SEGMENTS:]
    for base in there:
        if (begin or 0) <= base < until and not _look_through(disk, base, until, found):
            found.clear()
    if len(found) > _MOST:
        newest = heapq.nlargest(_MOST, found.items(), key=lambda one: one[1][1])
        return dict(newest)
    return found


def note_producers(disk: Disk, identity: StreamIdentity, partition: int, until: int) -> None:
    """Write down which there are before ``until``, where a segment ends. Raises OSError."""
    found = producers_before(disk, until)
    if not found and PRODUCERS not in disk.names():
        return
    told = [[producer, *last] for producer, last in found.items()]
    header = identity.producers(partition, until)
    write_map(disk, PRODUCERS, UNFINISHED_PRODUCERS, header, {"producers": told})


def _noted(disk: Disk, until: int) -> tuple[int | None, Producers]:
    """Up to which offset they were written down, and these."""
    try:
        found = read_map(disk, PRODUCERS, STREAM_PRODUCERS)
        if found is None or found[0].number > until:
            return None, {}
        header, told, at = found
        return header.number, _checked(told, str(disk.path(PRODUCERS)), at)
    except FileError:
        return None, {}


def _checked(told: dict[str, Any], path: str, at: int) -> Producers:
    try:
        found = {
            int(producer): (int(sequence), int(offset), int(count))
            for producer, sequence, offset, count in told["producers"]
        }
    except (ValueError, TypeError, LookupError) as error:
        raise DamagedFile(path, at, f"the producers cannot be read: {error}") from None
    for producer, (sequence, offset, count) in found.items():
        if min(producer, sequence, offset) < 0 or not 0 < count < 1 << 32:
            raise DamagedFile(path, at, f"producer {producer} has no such records")
        if max(producer, sequence + count, offset + count) >= 1 << 64:
            raise DamagedFile(path, at, f"producer {producer} has no such records")
    return found


def _look_through(disk: Disk, base: int, until: int, found: Producers) -> bool:
    """Add what a segment has; whether it could be read."""
    try:
        return StreamSegment(disk, base).produced(until, found)
    except FileError:
        return False
