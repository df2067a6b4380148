"""The producers of a partition, from its files, for deduplication after a recovery.

Every record has its producer's number and its sequence number. When a segment ends, the last
sequences up to there are written to ``producers.dmsq``: so only later records have to be read,
and old segments may be removed.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import STREAM_PRODUCERS, StreamIdentity
from shmq.disk.storage.map_file import read_map, write_map
from shmq.disk.storage.paths import PRODUCERS, UNFINISHED_PRODUCERS, bases
from shmq.disk.storage.stream_segment import StreamSegment
from shmq.errors import DamagedFile, FileError

#: By producer: the sequence number and the offset of the first of its last records, and their
#: number.
Producers = dict[int, tuple[int, int, int]]

#: As many as a partition in shared memory remembers: SHMQ_PRODUCERS.
_MOST: Final = 4096
#: How many segments are read if no such file.
_SEGMENTS: Final = 2


def producers_before(disk: Disk, until: int) -> Producers:
    """The producers of the partition in the directory ``disk``, from records before ``until``.

    An unreadable segment is left out, with all before it: a producer must not be refused because
    of missing records. Raises OSError.
    """
    begin, found = _read_noted(disk, until)
    there = bases(disk.names())
    if begin is None:
        there = there[-_SEGMENTS:]
    for base in there:
        if (begin or 0) <= base < until and not _add_producers(disk, base, until, found):
            found.clear()
    if len(found) > _MOST:
        newest = heapq.nlargest(_MOST, found.items(), key=lambda one: one[1][1])
        return dict(newest)
    return found


def note_producers(disk: Disk, identity: StreamIdentity, partition: int, until: int) -> None:
    """Write the file of the producers before ``until``, where a segment ends. Raises OSError."""
    found = producers_before(disk, until)
    if not found and PRODUCERS not in disk.names():
        return
    rows = [[producer, *last] for producer, last in found.items()]
    header = identity.producers(partition, until)
    write_map(disk, PRODUCERS, UNFINISHED_PRODUCERS, header, {"producers": rows})


def _read_noted(disk: Disk, until: int) -> tuple[int | None, Producers]:
    """The offset up to which the file of the producers goes, and those producers."""
    try:
        found = read_map(disk, PRODUCERS, STREAM_PRODUCERS)
        if found is None or found[0].number > until:
            return None, {}
        header, content, at = found
        return header.number, _check(content, str(disk.path(PRODUCERS)), at)
    except FileError:
        return None, {}


def _check(content: dict[str, Any], path: str, at: int) -> Producers:
    try:
        found = {
            int(producer): (int(sequence), int(offset), int(count))
            for producer, sequence, offset, count in content["producers"]
        }
    except (ValueError, TypeError, LookupError) as error:
        raise DamagedFile(path, at, f"the producers cannot be read: {error}") from None
    for producer, (sequence, offset, count) in found.items():
        if min(producer, sequence, offset) < 0 or not 0 < count < 1 << 32:
            raise DamagedFile(path, at, f"the numbers of producer {producer} are out of range")
        if max(producer, sequence + count, offset + count) >= 1 << 64:
            raise DamagedFile(path, at, f"the numbers of producer {producer} are out of range")
    return found


def _add_producers(disk: Disk, base: int, until: int, found: Producers) -> bool:
    """Add the producers of a segment; return whether it could be read."""
    try:
        return StreamSegment(disk, base).produced(until, found)
    except FileError:
        return False
