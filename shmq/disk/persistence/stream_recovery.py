"""Recovers the streams whose shared memory is gone, with the offsets of their groups.

Only the end of each partition is read: everything before was synced, and its readers verify
checksums. A torn tail is left in place: the writer begins a new segment, and older segments do
not count from that segment's first offset on.

A stream is created again with empty rings. Its partitions are the same, sealed as they were, and
their offsets continue where the files end; older records are read from the files. No process
sees the stream before its groups have their offsets. Of a group only what the metadata file has
survives: its options, and its offset in each partition, but neither members nor leases.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shmq.api.names import check_name
from shmq.api.stream_options import StreamOptions
from shmq.disk.persistence.conflicts import live_identities
from shmq.disk.storage.disk import PASSING, Disk, size_of, sync_file, unreadable
from shmq.disk.storage.erase import sweep_streams
from shmq.disk.storage.file_header import StreamIdentity, Tail, read_tail
from shmq.disk.storage.paths import (
    STREAMS,
    bases,
    partition_directory,
    segment_file,
    stream_directory,
    streams_among,
)
from shmq.disk.storage.progress import OnProgress, Report, Step, bytes_of, silent
from shmq.disk.storage.stream_meta import Generation, read_card
from shmq.disk.storage.stream_producers import Producers, producers_before
from shmq.disk.storage.stream_segment import StreamSegment
from shmq.errors import DamagedFile, FileError, SegmentError, ShmqError
from shmq.host.namespace import group_files, streams
from shmq.host.namespace.namespace import Namespace
from shmq.native._group import GroupState


def recover_streams(registry: Namespace, disk: Disk) -> dict[str, StoredStream]:
    """Rebuild the streams that are on disk and not in memory; the result for each is logged.

    Returns those streams. Needs the registry lock, and the directory. May be killed at any moment
    and called again. Raises OSError.
    """
    live = live_identities(registry, logging.ERROR)
    known = {(name, identity) for name, identity in live.items() if identity is not None}
    sweep_streams(disk, known)
    lost = {}
    for name, stored in plan_streams(disk, known).items():
        if name in live:
            log.warning(
                "stream %s: %s has records of another stream of that name; they are not used",
                name,
                disk.path(stream_directory(name, stored.identity)),
            )
            continue
        _recover_stream(registry, stored)
        lost[name] = stored
    return lost


def _recover_stream(registry: Namespace, stored: StoredStream) -> None:
    name = stored.name
    if stored.error is None:
        try:
            rebuild_stream(registry, stored)
        except (ShmqError, TypeError) as error:
            stored.error = error if isinstance(error, ShmqError) else ShmqError(str(error))
    if stored.error is not None:
        log.error("stream %s is not recovered: %s; its files are unchanged", name, stored.error)
        return
    records = sum(end.next - end.earliest for end in stored.ends)
    log.info("stream %s is recovered: %d records on disk", name, records)
    for partition, end in enumerate(stored.ends):
        if end.tail is not None:
            log.warning(
                "stream %s: %s", name, end.tail.describe(_describe_lost(partition, end.tail))
            )


def _describe_lost(partition: int, tail: Tail) -> str:
    if tail.batch is None or tail.last_seq is None:
        return f"records of an unknown number of partition {partition}"
    count = max(0, tail.last_seq - tail.batch)
    return (
        f"{count} record{'' if count == 1 else 's'} of partition {partition}, from offset "
        f"{tail.batch} on"
    )


def rebuild_stream(registry: Namespace, stored: StoredStream) -> None:
    """Create the stream in memory from its files. Needs the registry lock. Raises ShmqError."""
    name, options = check_name(stored.name, "stream"), StreamOptions.given(stored.options)
    firsts = [(end.next, end.time or 0) for end in stored.ends]
    control, logs = streams.make_stream(
        registry,
        name,
        options,
        identity=stored.identity,
        firsts=firsts,
        eras=stored.eras,
        publish=False,
    )
    for partition, end in zip(logs, stored.ends, strict=True):
        oldest_first = sorted(end.producers.items(), key=lambda one: one[1][1])
        partition.restore_producers((producer, *last) for producer, last in oldest_first)
    restore_groups(registry, stored)
    control.publish()


log = logging.getLogger("shmq")

#: Options that the next group of the same name must not inherit.
_OWN: Final = frozenset({"group_id", "stream_id"})

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

    Of two streams of one name the newer counts, and the other is logged. Raises OSError if the
    directory itself cannot be read.
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
                "stream %s: %s has records of an older stream of that name; they are not used",
                name,
                disk.path(stream_directory(name, older.identity)),
            )
        found[name] = stored
    return found


def stored_stream(
    disk: Disk, name: str, identity: int, report: Report = silent, what: str = ""
) -> StoredStream | None:
    """Read the files of that stream; None: it has no metadata file. Raises OSError for want.

    ``report`` is called with the bytes that are read, as the step ``what``.
    """
    stored = StoredStream(name, identity)
    try:
        card = read_card(disk.under(stream_directory(name, identity)))
        if card is None:
            return None
        header, content = card
        stored.groups, stored.eras = content.groups, content.eras
        stored.written, stored.options = header.created, dict(header.options)
        if header.name != name or header.hash_key != identity:
            path = str(disk.path(stream_directory(name, identity)))
            raise FileError(f"{path} has the card of stream {header.name!r}: nothing is read of it")
        whose = StreamIdentity(name, header.queue_id, identity, stored.options)
        every = [
            disk.under(partition_directory(name, identity, partition))
            for partition in range(stored.eras[-1].end)
        ]
        sizes = [bytes_of(map(below.path, _list_last_segment(below))) for below in every]
        step = Step(report, what, sum(sizes))
        for partition, below in enumerate(every):
            with step.part(sizes[partition]) as on_progress:
                stored.ends.append(end_of_partition(below, whose, partition, on_progress))
    except ShmqError as error:
        stored.error = error
    except OSError as error:
        if error.errno in PASSING:
            raise
        stored.error = unreadable(error, disk.path(stream_directory(name, identity)))
    if stored.error is not None:
        stored.written = stored.written or _LAST_TIME  # no other one may hide it
    return stored


def _list_last_segment(disk: Disk) -> list[str]:
    """The file of the partition's last segment, if it has any."""
    return [segment_file(base) for base in bases(disk.names())[-1:]]


def end_of_partition(
    disk: Disk, identity: StreamIdentity, partition: int, on_progress: OnProgress | None = None
) -> PartitionEnd:
    """Where the partition with that directory continues. Raises FileError and OSError.

    The records that count are synced: their writer may have died before its own sync. A segment
    without an intact header is removed, since readers rely on its name; but if records are
    missing before it, it is reported as damage. ``on_progress`` is called with how many more bytes
    are read.
    """
    there = bases(disk.names())
    if not there or not _has_no_header(disk, identity, partition, there[-1]):
        return _find_end(disk, there, 0, on_progress)
    empty = there.pop()
    end = _find_end(disk, there, empty, on_progress)
    if end.next < empty:
        path = str(disk.path(segment_file(empty)))
        raise DamagedFile(
            path, 0, f"its header is not whole, and what is before ends at {end.next}"
        )
    disk.unlink(segment_file(empty))
    disk.sync_directory()
    return end


def _find_end(
    disk: Disk, there: list[int], begin: int, on_progress: OnProgress | None
) -> PartitionEnd:
    """Where these segments end; ``begin`` if there are none. Raises FileError and OSError."""
    if not there:
        return PartitionEnd(begin, begin, None)
    last = StreamSegment(disk, there[-1])
    found = last.check(on_progress=on_progress)
    sync_file(disk, segment_file(there[-1]))
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


def _has_no_header(disk: Disk, identity: StreamIdentity, partition: int, base: int) -> bool:
    """Whether a power cut came before the segment's header was synced, so it has no records.

    Nothing is written after a header that was not synced.
    """
    try:
        StreamSegment(disk, base)
    except FileError:
        if size_of(disk, segment_file(base)) <= len(identity.segment(partition, base).pack()):
            return True
        raise
    return False


def groups_of(namespace: Namespace, identity: int) -> dict[str, Any]:
    """Each group's options and its committed offsets, by name."""
    found: dict[str, Any] = {}
    for name in group_files.group_names(namespace, identity):
        with contextlib.suppress(SegmentError, ShmqError):
            group_state = group_files.look_at(namespace, identity, name)
            if group_state is not None:
                options = durable_options(group_state.options)
                found[name] = {"options": options, "committed": _find_settled(group_state)}
    return found


def durable_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a group that its successor of the same name gets after a recovery."""
    return {key: value for key, value in options.items() if key not in _OWN}


def _find_settled(group_state: GroupState) -> list[int | None]:
    """For each partition the committed offset; in a shared group, the lowest unsettled one."""
    if group_state.options["assignment"] == "shared":
        return list(group_state.lows())
    return [seat[2] for seat in group_state.seats()]


def restore_groups(namespace: Namespace, stored: StoredStream) -> None:
    """Recreate the groups of the metadata file with their offsets; a failure is logged.

    A group may have consumed records, or whole partitions, that were not on disk yet. So no
    offset is set beyond the end of the files: the records appended there now are new to it.
    """
    for name, state in stored.groups.items():
        try:
            _restore_group(namespace, stored, name, state["options"], state["committed"])
        except (ShmqError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            log.error("group %s of stream %s is not recovered: %s", name, stored.name, error)


def _restore_group(
    namespace: Namespace,
    stored: StoredStream,
    name: str,
    options: dict[str, Any],
    committed: Sequence[int | None],
) -> None:
    group_state = group_files.open_or_make(namespace, stored.name, stored.identity, name, options)
    there = list(zip(committed, stored.ends, strict=False))
    group_state.widen(len(there))
    for partition, (offset, end) in enumerate(there):
        if offset is not None:
            done = min(offset, end.next)
            group_state.commit(partition, 0, done)
            group_state.begin(partition, done)
