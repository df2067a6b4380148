"""Reads a queue's files: a snapshot, and the journal's segments from its number on.

A :class:`QueueFiles` is read as a whole, without shared memory: the files are checked against
each other and replayed into the live messages, in order. The caller selects the files.

How far a file counts: a segment up to the ``previous_end`` of the next one, a closed one at
least up to the end in its footer, a snapshot to its end. Only after that may the last file
end in a torn batch; anything else is damage.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from shmq.api import Columns
from shmq.disk.storage.file_header import HEADER_BYTES, SNAPSHOT, FileHeader, read_header
from shmq.disk.storage.progress import OnProgress
from shmq.errors import DamagedFile, FileError
from shmq.native import _clock as time
from shmq.native import _core

#: The first and the last sequence number that a message may have.
ALL_NUMBERS: Final = (0, (1 << 64) - 1)
#: The first and the last time that a file can have, in us since 1970.
ALL_TIMES: Final = (-(1 << 63), (1 << 63) - 1)

_WHAT: Final = {
    "end": "the file ends where more must follow",
    "cut": "a record is cut off",
    "crc": "a record's checksum is not that of its bytes",
    "type": "a record has an unknown type",
    "malformed": "a record is inconsistent, or of a type that cannot follow",
}


class Skipped(NamedTuple):
    """A part of a file that a salvage skipped."""

    path: str
    offset: int
    #: How many bytes; 0 if the whole file is missing, or could not be read.
    bytes: int
    what: str

    def __str__(self) -> str:
        extent = f"{self.bytes} bytes skipped" if self.bytes else "skipped"
        return f"{self.path} at byte {self.offset}: {extent}: {self.what}"


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    path: str
    data: Any
    header: FileHeader
    start: int
    closed: int


class QueueFiles:
    """The state of a queue from its ``files``: paths, each with the file's bytes as a buffer.

    Raises :class:`~shmq.FileError` for files that are not of one queue, and
    :class:`~shmq.DamagedFile` for damage, with file and offset; with ``salvage``, damaged parts
    are skipped and listed in ``skipped``. Raises :class:`~shmq.IncompatibleFile` for a newer
    version in either case. With ``partial``, files before the first one may be missing. Only
    messages with sequence ``numbers`` from the first to the last are kept. ``on_progress`` is
    called again and again with how many more bytes are read. The buffers are held until
    :meth:`close`.
    """

    def __init__(
        self,
        files: Iterable[tuple[str, Any]],
        salvage: bool = False,
        partial: bool = False,
        *,
        numbers: tuple[int, int] = ALL_NUMBERS,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._salvage = salvage
        self._partial = partial
        self._on_progress = on_progress
        self._replay = _core.Replay(salvage, *numbers)
        self._sorted = False
        #: The highest number of a message that was moved to another queue.
        self._left = 0
        #: The numbers of moved messages that are live in these files.
        self.gone: list[int] = []
        self.skipped: list[Skipped] = []
        #: Whether the last segment ends in a batch that does not count.
        self.torn = False
        #: The highest segment, and how many of its bytes count; 0 without a segment.
        self.segment = self.end = 0
        #: The salt of that segment's records; None if it is closed, or there is none.
        self.open_salt: int | None = None
        snapshot, segments = self._arrange(files)
        everything = [*([snapshot] if snapshot else []), *segments]
        if not everything:
            raise FileError("none of the files can be read")
        self._fed: list[str] = []
        # Not the last one: a segment that is open while a snapshot is taken may hold nothing yet.
        newest = max((file.header for file in everything), key=lambda header: header.created)
        self.name, self.options = newest.name, dict(newest.options)
        self.hash_key = newest.hash_key
        self.queue_ids = {file.header.queue_id for file in everything}
        if snapshot:
            self.segment = max(0, snapshot.header.number - 1)
            self._feed_snapshot(snapshot)
        self._feed_segments(segments)
        for file, offset, count, how in self._replay.skipped():
            self.skipped.append(Skipped(self._fed[file], offset, count, _WHAT[how]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the files' buffers; the object cannot be used any more."""
        self._replay.close()

    @property
    def messages(self) -> int:
        """How many messages are live."""
        return self._replay.messages

    @property
    def bytes(self) -> int:
        """The bytes of the live messages' records."""
        return self._replay.bytes

    @property
    def last_seq(self) -> int:
        """The last sequence number that was assigned."""
        return max(self._replay.last_seq, self._left)

    @property
    def last_batch(self) -> int:
        """The number of the newest batch of the last file."""
        return self._replay.last_batch

    @property
    def totals(self) -> dict[str, int]:
        """The queue's counters, as last written."""
        return self._replay.totals

    def origins(self) -> list[tuple[int, int, int]]:
        """The origins of messages that were moved here, whether live or settled.

        Each is the source queue's hash key, the sequence number there, and the one here.
        """
        return self._replay.origins()

    def leave(self, seq: int) -> None:
        """Drop a message that was moved to another queue; its number is not reused.

        These files may not have it, if its copy was written first.
        """
        if self._replay.discard([seq]):
            self.gone.append(seq)
        self._left = max(self._left, seq)

    def discard(self, seqs: Iterable[int]) -> int:
        """Drop messages, before any is read; returns how many of them there were."""
        return self._replay.discard(seqs)

    def spread(self, parts: int) -> tuple[int, int, list[int]]:
        """The distribution of the live messages' bytes over sequence numbers, in so many parts.

        Returns the lowest number, how many numbers a part has, and the bytes of each part; no
        parts without messages. Must be called before any message is read.
        """
        return self._replay.spread(parts)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The live messages in order: the fields of a "put", times in ns since 1970."""
        self._sort()
        return map(self._replay.message, range(self._replay.messages))

    def columns(
        self, start: int = 0, *, max_bytes: int = 4 << 20, put_at: tuple[int, int] = ALL_TIMES
    ) -> tuple[Columns, int | None]:
        """The live messages from position ``start`` on as columns, by sequence number.

        As many as fit in ``max_bytes``, at least one, of those put between the two times of
        ``put_at``, inclusive, in us since 1970. Also returns the next position; None: there are
        no more. Raises :class:`~shmq.MessageTooLarge` for one that no block can hold.
        """
        self._sort()
        since, until = put_at
        return self._replay.columns(start, max_bytes=max_bytes, min_put_at=since, max_put_at=until)

    def dedupe(self) -> list[tuple[int, int, int, int]]:
        """The dedupe ids: two halves of the hash, sequence number, expiry in ns since 1970."""
        self._sort()
        return self._replay.dedupe()

    def restore(
        self, segment: _core.Segment, logged: bool = True, on_progress: OnProgress | None = None
    ) -> None:
        """Fill the unpublished ``segment`` with the queue's state, and publish it.

        ``logged``: the files are those of the queue's own journal, which continues after
        them. ``on_progress`` is called again and again with how many more of the ``bytes`` are in
        it. Raises :class:`~shmq.NoSpace`, and :class:`~shmq.FileError` for messages that do not fit
        in a queue with the segment's options.
        """
        self._sort()
        restoration = _core.Restoration(segment, logged)
        self._replay.restore(restoration, on_progress)
        place = (self.last_batch, self.segment, self.end) if logged else (0, 0, 0)
        restoration.finish(self.last_seq, tuple(self.totals.values()), *place)

    def _sort(self) -> None:
        if not self._sorted:
            self._replay.sort(time.time_ns())
            self._sorted = True

    # -- selecting the files -----------------------------------------------------------

    def _arrange(self, files: Iterable[tuple[str, Any]]) -> tuple[_File | None, list[_File]]:
        """The snapshot, and the segments that count on top of it, in order."""
        found = [file for path, data in files if (file := self._open(path, data))]
        for file in found[1:]:
            self._check_kin(found[0], file)
        snapshots = [file for file in found if file.header.kind == SNAPSHOT]
        if len(snapshots) > 1:
            raise FileError(
                f"{snapshots[0].path} and {snapshots[1].path} are both snapshots: give one of them"
            )
        snapshot = snapshots[0] if snapshots else None
        first = snapshot.header.number if snapshot else 0
        segments = [
            file for file in found if file.header.kind != SNAPSHOT and file.header.number >= first
        ]
        segments.sort(key=lambda file: file.header.number)
        if segments and not self._partial:
            self._check_first(snapshot, segments[0])
        return snapshot, segments

    def _open(self, path: str, data: Any) -> _File | None:
        try:
            header, start = read_header(memoryview(data)[:HEADER_BYTES], path)
        except DamagedFile as error:
            if not self._salvage:
                raise
            self.skipped.append(Skipped(path, error.offset, 0, error.what))
            return None
        closed = _core.closed_at(data, start, header.salt)
        return _File(path, data, header, start, closed)

    def _check_kin(self, one: _File, other: _File) -> None:
        mine, theirs = one.header, other.header
        if (mine.name, mine.hash_key) != (theirs.name, theirs.hash_key):
            raise FileError(
                f"{other.path} is of queue {theirs.name!r} ({theirs.hash_key:016x}), and "
                f"{one.path} of {mine.name!r} ({mine.hash_key:016x}): give files of one queue"
            )

    def _check_first(self, snapshot: _File | None, segment: _File) -> None:
        number = segment.header.number
        if snapshot and number != snapshot.header.number:
            self._report(segment, f"segments {snapshot.header.number} to {number - 1} are missing")
        elif not snapshot and segment.header.previous_end:
            self._report(segment, "what is before it is missing, and no snapshot exists")

    def _report(self, segment: _File, what: str) -> None:
        if not self._salvage:
            raise DamagedFile(segment.path, 0, what)
        self.skipped.append(Skipped(segment.path, 0, 0, what))

    # -- reading the files -------------------------------------------------------------

    def _feed_snapshot(self, file: _File) -> None:
        found = self._feed(file, file.closed or len(file.data), False)
        if not found["complete"]:
            what = "the snapshot is not complete"
            if not self._salvage:
                raise DamagedFile(file.path, found["end"], what)
            if not self._replay.skipped():
                self.skipped.append(Skipped(file.path, found["end"], 0, what))

    def _feed_segments(self, segments: list[_File]) -> None:
        for at, file in enumerate(segments):
            number, after = file.header.number, segments[at + 1] if at + 1 < len(segments) else None
            if after and after.header.number != number + 1:
                self._report(
                    after, f"segments {number + 1} to {after.header.number - 1} are missing"
                )
                after = None
            whole = max(file.start, after.header.previous_end if after else file.closed)
            found = self._feed(file, whole, after is not None)
            self.segment, self.end = number, found["end"]
            self.open_salt = None if file.closed else file.header.salt

    def _feed(self, file: _File, whole: int, exact: bool) -> dict[str, Any]:
        self._fed.append(file.path)
        fed, found = self._replay.feed(
            file.data, file.start, file.header.salt, file.header.first_batch, whole, exact,
            on_progress=self._on_progress,
        )  # fmt: skip
        self.torn = fed == "torn"
        if fed == "damaged":
            raise DamagedFile(file.path, found["damage"], _WHAT[found["how"]])
        return found


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The file's bytes, copied, for a file that may be truncated."""
    return Path(path).read_bytes()
