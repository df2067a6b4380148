"""Reads the files of a stream, to find where each of its partitions continues.

Only the end of each partition is read: everything before was synced, and its readers verify
checksums. A torn tail is left in place: the writer begins a new segment, and older segments do
not count from that segment's first offset on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from shmq.errors import DamagedFile, FileError, ShmqError
from shmq.storage.disk import Disk
from shmq.storage.file_header import StreamIdentity, Tail, read_tail
from shmq.storage.paths import (
    STREAMS,
    bases,
    partition_directory,
    segment_file,
    stream_directory,
    streams_among,
)
from shmq.storage.stream_meta import Generation, read_card
from shmq.storage.stream_producers import Producers, producers_before
from shmq.storage.stream_segment import StreamSegment

__all__ = ["PartitionEnd", "StoredStream", "end_of_partition", "plan_streams", "stored_stream"]

log = logging.getLogger("shmq")

#: Later than any time at which a metadata file may have been written.
_LAST_TIME: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Where a partition continues."""

    #: The first offset in a file, and the offset of the next record.
    earliest: int
    next: int
    #: The time of the last record, in ns; None: unknown, or there is none.
    time: int | None
    #: The last sequences of its producers, from its records.
    producers: Producers = field(default_factory=dict)
    #: The part of its last file that does not count; None: all of it counts.
    tail: Tail | None = None


@dataclass(slots=True)
class StoredStream:
    """What the files of one stream say."""

    name: str
    identity: int
    #: When its metadata file was written, in ns: of several streams of one name the newest counts.
    written: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    eras: list[Generation] = field(default_factory=list)
    #: The ends of all partitions of all generations.
    ends: list[PartitionEnd] = field(default_factory=list)
    #: What is wrong with the files; None: nothing.
    error: ShmqError | None = None


def plan_streams(disk: Disk, known: Collection[tuple[str, int]] = ()) -> dict[str, StoredStream]:
    """The streams in the data directory, by name, except those that are ``known``.

    Of two streams of one name the newer counts, and the other is logged. Raises OSError.
    """
    found: dict[str, StoredStream] = {}
    for name, identity in streams_among(disk.under(STREAMS).names()):
        if (name, identity) in known:
            continue
        stored = stored_stream(disk, name, identity)
        if stored is None:
            continue
        other = found.get(name)
        if other is not None:
            older, stored = sorted((other, stored), key=lambda one: one.written)
            log.warning(
                "stream %s: %s has records of an older stream of that name, which are left there",
                name,
                disk.path(stream_directory(name, older.identity)),
            )
        found[name] = stored
    return found


def stored_stream(disk: Disk, name: str, identity: int) -> StoredStream | None:
    """Read the files of that stream; None: it has no metadata file. Raises OSError."""
    stored = StoredStream(name, identity)
    try:
        card = read_card(disk.under(stream_directory(name, identity)))
        if card is None:
            return None
        header, told = card
        stored.groups, stored.eras = told.groups, told.eras
        stored.written, stored.options = header.created, dict(header.options)
        if header.name != name or header.hash_key != identity:
            path = str(disk.path(stream_directory(name, identity)))
            raise FileError(f"{path} has the card of stream {header.name!r}: nothing is read of it")
        whose = StreamIdentity(name, header.queue_id, identity, stored.options)
        for partition in range(stored.eras[-1].end):
            below = disk.under(partition_directory(name, identity, partition))
            stored.ends.append(end_of_partition(below, whose, partition))
    except ShmqError as error:
        stored.error = error
        stored.written = stored.written or _LAST_TIME  # no other one may hide it
    return stored


def end_of_partition(disk: Disk, identity: StreamIdentity, partition: int) -> PartitionEnd:
    """Where the partition with that directory continues. Raises FileError and OSError.

    The records that count are synced: their writer may have died before its own sync. A segment
    without an intact header is removed, since readers rely on its name; but if records are
    missing before it, it is reported as damage.
    """
    there = bases(disk.names())
    if not there or not _is_stillborn(disk, identity, partition, there[-1]):
        return _end_of(disk, there, 0)
    stillborn = there.pop()
    end = _end_of(disk, there, stillborn)
    if end.next < stillborn:
        path = str(disk.path(segment_file(stillborn)))
        raise DamagedFile(
            path, 0, f"its header is not whole, and what is before ends at {end.next}"
        )
    disk.unlink(segment_file(stillborn))
    disk.sync_directory()
    return end


def _end_of(disk: Disk, there: list[int], begin: int) -> PartitionEnd:
    """Where these segments end; ``begin`` if there are none. Raises FileError and OSError."""
    if not there:
        return PartitionEnd(begin, begin, None)
    last = StreamSegment(disk, there[-1])
    found = last.check()
    _sync(disk, there[-1])
    producers = producers_before(disk, found.offset)
    tail = None
    if not found.closed:
        tail = read_tail(disk, segment_file(last.base), found.end, last.header.salt)
    if found.offset > last.base:
        return PartitionEnd(there[0], found.offset, found.time, producers, tail)
    time = None
    if len(there) > 1:
        behind, time = StreamSegment(disk, there[-2]).last(last.base)
        if behind != last.base and (not behind or behind != last.header.previous_end):
            raise DamagedFile(
                str(disk.path(segment_file(there[-2]))),
                0,
                f"it ends at {behind}, and the next segment begins with {last.base}",
            )
    return PartitionEnd(there[0], last.base, time, producers, tail)


def _is_stillborn(disk: Disk, identity: StreamIdentity, partition: int, base: int) -> bool:
    """Whether a power cut came before the segment's header was synced, so it has no records.

    Nothing is written behind a header that was not synced.
    """
    try:
        StreamSegment(disk, base)
    except FileError:
        file = disk.open(segment_file(base))
        try:
            size = disk.size(file)
        finally:
            disk.close(file)
        if size <= len(identity.segment(partition, base).pack()):
            return True
        raise
    return False


def _sync(disk: Disk, base: int) -> None:
    file = disk.open(segment_file(base))
    try:
        disk.sync(file)
    finally:
        disk.close(file)
