"""Salvages a stream's damaged files, and verifies single ones.

The intact records of a damaged segment are written to new segments, with their offsets; what is
missing between them is a gap, which is reported to readers. The damaged file is kept as
``FILE.damaged``. The original keeps its name until all of that is on disk, so a salvage that is
interrupted starts again. A damaged metadata file is rebuilt from the segments' headers.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_journal import Commit, StreamJournal
from shmq.disk.storage.disk import (
    LASTING,
    Disk,
    create_file,
    read_whole,
    remove_file,
    replace_file,
    unreadable,
)
from shmq.disk.storage.file_header import FileHeader, StreamIdentity
from shmq.disk.storage.paths import (
    UNFINISHED_SEGMENT,
    bases,
    free_name,
    partition_directory,
    segment_file,
    stream_directory,
)
from shmq.disk.storage.progress import OnProgress, Report, Step, bytes_of, silent
from shmq.disk.storage.stream_meta import StreamCard, eras_of, read_card, write_card
from shmq.disk.storage.stream_segment import (
    EVERYTHING,
    LEAST_TIME,
    StreamSegment,
    read_stream_header,
)
from shmq.errors import DamagedFile, FileError, IncompatibleFile
from shmq.native import _file

_SCRATCH: Final = ".salvage"
#: The offset and the time of an entry, and its record type, with their byte positions.
_PLACE: Final = struct.Struct("<Qq")
_PLACE_AT: Final = 16
_TYPE: Final = b"\x0a"
_TYPE_AT: Final = 8
_LEAST_BYTES: Final = 48
_MAGIC: Final = b"DMSQ"


@dataclass(slots=True)
class Run:
    """Consecutive records, without a gap."""

    first: int
    next: int
    pieces: list[memoryview] = field(default_factory=list)


def runs_in(raw: bytes, salt: int, first: int, until: int) -> list[Run]:
    """The intact records of a file with offsets from ``first`` to before ``until``, in order.

    ``salt`` is the stream's. The rest of the file may be damaged in any way.
    """
    runs: list[Run] = []
    salts, at, time = (0, salt), 0, LEAST_TIME
    while (at := _find_entry(raw, at, salts, (first, until), time)) >= 0:
        begin, _ = _PLACE.unpack_from(raw, at + _PLACE_AT)
        _, end, first, time, _ = _file.walk(raw, at, salts, begin, time, stop_offset=until)
        if not runs or runs[-1].next != begin:
            runs.append(Run(begin, begin))
        runs[-1].pieces.append(memoryview(raw)[at:end])
        runs[-1].next = first
        at = end
    return runs


def gaps_between(runs: Sequence[Run], first: int, until: int) -> list[tuple[int, int]]:
    """The ranges of offsets from ``first`` to before ``until`` that are in none of the runs."""
    ends = [first, *(run.next for run in runs)]
    begins = [*(run.first for run in runs), until]
    return [(end, begin) for end, begin in zip(ends, begins, strict=True) if end < begin]


def _find_entry(
    raw: bytes, at: int, salts: tuple[int, int], among: tuple[int, int], time: int
) -> int:
    """The position of the next intact record of those offsets, from ``at`` on; -1: none."""
    found = raw.find(_TYPE, at + _TYPE_AT)
    while found >= 0:
        at = found - _TYPE_AT
        if at % 8 == 0 and at + _LEAST_BYTES <= len(raw):
            offset, moment = _PLACE.unpack_from(raw, at + _PLACE_AT)
            if among[0] <= offset < among[1] and moment >= time:
                *_, count = _file.walk(raw, at, salts, offset, moment, among[1], most=1)
                if count:
                    return at
        found = raw.find(_TYPE, found + 1)
    return -1


def salvage_stream(disk: Disk, name: str, identity: int, report: Report = silent) -> list[str]:
    """Repair all files of the stream; returns one line for each problem, with what is lost.

    ``disk`` is the data directory, where no writer writes the stream. Raises
    :class:`~shmq.FileError` if nothing can be salvaged, and OSError.
    """
    problems = []
    own = disk.under(stream_directory(name, identity))
    try:
        found = read_card(own)
        if found is None:
            raise FileError(f"{own.directory} has no card: nothing of it was ever finished")
        header, card = found
        if (header.name, header.hash_key) != (name, identity):
            raise DamagedFile(str(own.directory), 0, f"it has the card of {header.name!r}")
    except DamagedFile as error:
        header, card = _rebuild_card(own, name, identity)
        problems.append(f"{error}: it is recreated, and the stream's groups are lost")
        write_card(own, _identify(name, identity, header, card), card)
    whose = _identify(name, identity, header, card)
    every = [
        disk.under(partition_directory(name, identity, partition))
        for partition in range(card.eras[-1].end)
    ]
    files = [below.path(segment_file(base)) for below in every for base in bases(below.names())]
    step = Step(report, f"salvaging stream {name!r}", bytes_of(files))
    for partition, below in enumerate(every):
        least = max((_get_committed(group, partition) for group in card.groups.values()), default=0)
        problems += _Partition(below, whose, partition, least).salvage(step)
    return problems


def _identify(name: str, identity: int, header: FileHeader, card: StreamCard) -> StreamIdentity:
    options = {**header.options, "partitions": card.eras[-1].count}
    return StreamIdentity(name, header.queue_id, identity, options)


def _get_committed(group: dict[str, Any], partition: int) -> int:
    """The group's committed offset of the partition; 0: none."""
    offsets = group.get("committed") or []
    return (offsets[partition] or 0) if partition < len(offsets) else 0


def _rebuild_card(own: Disk, name: str, identity: int) -> tuple[FileHeader, StreamCard]:
    """The metadata of a stream, from the headers of its segments. Raises FileError.

    The first segment of a partition has the options that the stream had when it was written.
    """
    count = sum(entry.isdecimal() for entry in own.names())
    headers = [
        list(_read_headers(own.under(str(partition)), identity)) for partition in range(count)
    ]
    every = sorted((one for there in headers for one in there), key=lambda one: one.created)
    eras: list[tuple[int, int]] = []
    end = 0
    while end < count and headers[end]:
        first = headers[end][0]
        made = int(first.options.get("partitions", 0))
        eras.append((made, first.created if eras else 0))
        if made < 1:
            break
        end += made
    if not every or end != count:
        raise FileError(
            f"{own.directory}: the card is damaged, and the headers of the segments do not say "
            f"how the {count} partitions of stream {name!r} came to be: restore a backup"
        )
    return every[-1], StreamCard({}, eras_of(eras))


def _read_headers(disk: Disk, identity: int) -> Iterator[FileHeader]:
    for base in bases(disk.names()):
        with contextlib.suppress(FileError):
            header, _ = read_stream_header(disk, base)
            if header.hash_key == identity:
                yield header


class _Partition:
    """Salvages the segments of one partition, in the directory ``disk``.

    ``least``: the lowest offset for the next record, if the files do not say it.
    """

    def __init__(self, disk: Disk, whose: StreamIdentity, partition: int, least: int) -> None:
        self._disk = disk
        self._whose = whose
        self._partition = partition
        self._least = least

    def salvage(self, step: Step) -> list[str]:
        """Repair the segments; returns the problems, with what is lost."""
        problems = []
        for base, limit in itertools.pairwise([*bases(self._disk.names()), EVERYTHING]):
            with step.part(bytes_of([self._disk.path(segment_file(base))])) as on_progress:
                problems.append(self._repair(base, limit, on_progress))
        self._admit_gap()
        return [problem for problem in problems if problem is not None]

    def _repair(self, base: int, limit: int, on_progress: OnProgress) -> str | None:
        """Repair a segment that goes up to ``limit``; returns the problem and the loss, or None."""
        segment = segment_file(base)
        try:
            found = StreamSegment(self._disk, base).check(limit, on_progress)
        except OSError as error:
            if error.errno not in LASTING:
                raise
            path = self._disk.path(segment)
            return f"{unreadable(error, path)}; lost: {self._rebuild(base, limit)}"
        except FileError as error:
            if isinstance(error, IncompatibleFile) and self._read(base)[:4] == _MAGIC:
                raise  # another version, not damage
            return f"{error}; lost: {self._rebuild(base, limit)}"
        if limit == EVERYTHING or found.offset >= limit:
            return None
        lost = self._describe_range(found.offset, limit)
        if found.how == "torn":
            lost = self._rebuild(base, limit)
        return (
            f"{self._disk.path(segment)} ends before {limit}, where the next begins; lost: {lost}"
        )

    def _admit_gap(self) -> None:
        """Mark a gap before an empty last segment as known, so that it is not damage."""
        *_, before, base = [-1, -1, *bases(self._disk.names())]
        if before >= 0 and StreamSegment(self._disk, base).check().offset == base:
            end, _ = StreamSegment(self._disk, before).last(base)
            if end != base:
                self._create_empty(base, end)

    def _rebuild(self, base: int, limit: int) -> str:
        """Replace a damaged segment, which goes up to ``limit``; returns what is lost."""
        runs = self._replace(base, limit)
        there = {run.first for run in runs}
        if limit == EVERYTHING:
            end = runs[-1].next if runs else base
            if not runs or end < self._least:
                there.add(max(end, self._least))
                self._create_empty(max(end, self._least))
        if base not in there:
            remove_file(self._disk, segment_file(base))
            self._disk.sync_directory()
        return self._describe_lost(base, limit, runs)

    def _describe_range(self, first: int, behind: int) -> str:
        return f"the offsets {first} to {behind - 1} of partition {self._partition}"

    def _describe_lost(self, base: int, limit: int, runs: list[Run]) -> str:
        """The offsets missing from the runs of a segment that goes up to ``limit``."""
        lost = [
            self._describe_range(first, behind)
            for first, behind in gaps_between(runs, base, limit)
            if behind != EVERYTHING
        ]
        if limit == EVERYTHING:
            end = runs[-1].next if runs else base
            lost.append(f"what was behind offset {end - 1} of partition {self._partition}")
        return ", ".join(lost) or "no record"

    def _replace(self, base: int, limit: int) -> list[Run]:
        """Replace this segment with segments of its intact records, and keep it aside."""
        try:
            raw = self._read(base)
        except OSError as error:
            if error.errno not in LASTING:
                raise
            name = segment_file(base)
            self._disk.rename(name, free_name(f"{name}.damaged", self._disk.names()))
            return []
        runs = runs_in(raw, self._whose.salt, base, limit)
        scratch = self._disk.under(_SCRATCH)
        self._clear(scratch)
        scratch.make()
        for run in runs:
            self._write(scratch, run)
        self._keep_aside(segment_file(base), raw)
        # The last one first: until the first is in place, the damaged one still has all records.
        for run in reversed(runs):
            self._disk.rename(f"{_SCRATCH}/{segment_file(run.first)}", segment_file(run.first))
            self._disk.sync_directory()
        self._clear(scratch)
        return runs

    def _read(self, base: int) -> bytes:
        return read_whole(self._disk, segment_file(base))

    def _write(self, scratch: Disk, run: Run) -> None:
        journal = StreamJournal(scratch, self._whose, self._partition, run.first, WriteSizes())
        entries = [memoryview(_file.entries(piece)) for piece in run.pieces]
        try:
            journal.append(Commit(entries, run.first, run.next))
            journal.roll()
        finally:
            journal.abandon()

    def _create_empty(self, offset: int, previous_end: int = 0) -> None:
        """Create an empty segment, which sets the next offset."""
        header = replace(self._whose.segment(self._partition, offset), previous_end=previous_end)
        replace_file(self._disk, segment_file(offset), UNFINISHED_SEGMENT, [header.pack()])

    def _keep_aside(self, name: str, raw: bytes) -> None:
        aside = free_name(f"{name}.damaged", self._disk.names())
        self._disk.close(create_file(self._disk, aside, [raw])[0])

    def _clear(self, scratch: Disk) -> None:
        for name in scratch.names():
            scratch.unlink(name)
        if scratch.exists():
            scratch.remove()
