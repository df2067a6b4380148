"""The writers of a durable stream: they write, sync and publish what its partitions append.

Group commit: while one commit of a partition is being synced, the records of the next one gather
in its ring, and go out together with one write and one sync. So the disk sets the pace, and how
many appends share a sync. The ring overwrites nothing that is not published.

Partitions that a repartition added are written once the older ones are completely on disk, and
are recorded in the stream's metadata file before their first write. So no record of a key is on
disk without those before it, and after any crash the files have one shape.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from shmq.disk.persistence.outage import RETRY, Outage, wait_for_retry
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_journal import Commit, StreamJournal
from shmq.disk.persistence.transactions import NO_TRANSACTIONS, Notes
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import erase_stream
from shmq.disk.storage.file_header import StreamIdentity
from shmq.disk.storage.paths import (
    CARD,
    PRODUCERS,
    bases,
    partition_directory,
    segment_file,
    stream_directory,
)
from shmq.disk.storage.set_aside import rename_aside
from shmq.disk.storage.stream_meta import (
    Generation,
    PartitionOfGeneration,
    StreamCard,
    eras_among,
    read_card,
    write_card,
)
from shmq.disk.storage.stream_segment import StreamSegment
from shmq.disk.storage.transaction_file import Id, Part
from shmq.errors import FileError, LockTimeout, OffsetOutOfRange, ShmqError, StreamDeleted

log = logging.getLogger("shmq")

#: The longest sleep, in seconds.
LONGEST: Final = 0.2
#: How long the last commits of a partition may take at the end, in seconds.
LAST: Final = 10.0
#: How often the retention of segments is checked, in seconds.
RETAIN: Final = 1.0


class WrittenPartition(PartitionOfGeneration, Protocol):
    """What the writer needs of a partition in shared memory."""

    @property
    def synced(self) -> int:
        """The published offset: every offset before it is on disk."""

    @property
    def finished(self) -> bool:
        """Whether it is sealed and completely on disk."""

    def collect(
        self, offset: int, most_bytes: int
    ) -> tuple[Sequence[memoryview], int, int, int, int] | None:
        """Whole entries from ``offset`` on: pieces, first and next offset, time, count."""

    def publish(self, offset: int) -> None:
        """Publish that every offset before it is on disk, and wake its waiters."""

    def fail(self, code: int) -> None:
        """Publish the errno with which the disk refuses; 0: it works again."""

    def await_entries(self, offset: int, timeout: float) -> bool:
        """Sleep until there are entries from ``offset`` on; return whether there are."""


class StreamPartitionWriter:
    """Writes one partition. Nothing runs by itself: `step` writes a commit. For one thread."""

    def __init__(
        self,
        disk: Disk,
        identity: StreamIdentity,
        partition: int,
        ring: WrittenPartition,
        sizes: WriteSizes,
        gone: Callable[[], bool] = lambda: False,
        transactions: Notes = NO_TRANSACTIONS,
    ) -> None:
        self._ring = ring
        self._is_gone = gone
        self._transactions = transactions
        self._part: Part = ("stream", identity.name, identity.identity)
        #: Open transactions that retention waits for; None: it does not wait.
        self._before: frozenset[Id] | None = None
        self._sizes = sizes
        self._where = f"partition {partition} of stream {identity.name}"
        self._disk = disk
        begin = ring.synced
        end = _find_end_of_files(disk, begin)
        if end != begin:
            begin = self._write_again(begin, end)
        self.journal = StreamJournal(disk, identity, partition, begin, sizes)
        self._bytes: int | None = identity.options.get("retention_bytes")
        self._seconds: float | None = identity.options.get("retention_seconds")
        self._retain_at = 0.0
        self._outage = Outage(self._where, disk.directory, ring.fail)
        self._lock = threading.RLock()
        self.journal.begin()
        self._ring.fail(0)

    @property
    def error(self) -> OSError | None:
        """Why the last write failed; None: it succeeded."""
        return self._outage.error

    def follow(self, identity: StreamIdentity, sizes: WriteSizes) -> None:
        """Write with the options of now. Its next file has them."""
        with self._lock:
            self._sizes = sizes
            self._bytes = identity.options.get("retention_bytes")
            self._seconds = identity.options.get("retention_seconds")
            self._retain_at = 0.0
            self.journal.follow(identity, sizes)

    def attend(self) -> None:
        """Sleep until there is something to write, for `LONGEST` at most."""
        self._ring.await_entries(self.journal.next, LONGEST)

    def step(self) -> bool:
        """Write one commit, if there is anything to write; return whether one was written.

        If the disk refuses, the partition records the error, and the next call tries again.
        """
        with self._lock:
            return self._write_commit()

    def held(self) -> contextlib.AbstractContextManager[object]:
        """A lock: while it is held, nothing is written, published or removed."""
        return self._lock

    def parts(self) -> list[tuple[str, int]]:
        """Its file names, each with the number of bytes that count. Needs the lock `held`."""
        parts = [(segment_file(base), size) for base, size in self.journal.lengths]
        if PRODUCERS in self._disk.names():
            parts.append((PRODUCERS, self._disk.path(PRODUCERS).stat().st_size))
        return parts

    def _write_commit(self) -> bool:
        try:
            written = self._commit()
            self._apply_retention()
        except OSError as error:
            self._fail(error)
            return False
        except (ShmqError, MemoryError) as error:
            self._fail(OSError(errno.EIO, str(error) or type(error).__name__))
            return False
        return written

    def close(self) -> None:
        """Write no more."""
        self.journal.abandon()

    def _commit(self) -> bool:
        found = self._collect()
        if found is None:
            self._outage.end()
            return False
        pieces, first, behind, _, _ = found
        try:
            self._transactions.note()
            self.journal.append(Commit(pieces, first, behind))
        finally:
            for piece in pieces:
                piece.release()
        self._outage.end()
        self._publish()
        if self.journal.is_long:
            self.journal.roll()
        return True

    def _collect(self) -> tuple[Sequence[memoryview], int, int, int, int] | None:
        try:
            return self._ring.collect(self.journal.next, self._sizes.commit)
        except OffsetOutOfRange as error:
            # Happens only if files were removed: at least the records that follow are written.
            log.error("%s: records before offset %d are not on disk", self._where, error.earliest)
            self._set_aside()
            self.journal = self.journal.restart_at(error.earliest)
            return self._ring.collect(self.journal.next, self._sizes.commit)

    def _publish(self) -> None:
        if self.journal.next > self._ring.synced:
            self._ring.publish(self.journal.next)

    def _apply_retention(self) -> None:
        now = time.monotonic()
        if now < self._retain_at or (self._bytes is None and self._seconds is None):
            return
        self._retain_at = now + RETAIN
        left = self._transactions.open(self._part)
        if self._before is None:
            self._before = left
        if self._before & left:
            return  # recovery would append the removed records again
        self._before = None
        before = None if self._seconds is None else time.time_ns() - int(self._seconds * 1e9)
        self.journal.retain(self._bytes, before)

    def _write_again(self, synced: int, end: int | None) -> int:
        """Where to continue, so that files that lack published records have those of the ring.

        Files that end within the ring, at ``end``, are older ones of this stream, and continue
        there. Others are set aside, and all that the ring holds is written.
        """
        earliest = self._find_earliest(synced)
        if end is not None and end >= earliest:
            log.warning(
                "%s: its files in %s end at offset %d: what follows is written there again",
                self._where,
                self._disk.directory,
                end,
            )
            return end
        log.warning(
            "%s: what was written of it is not in %s; all that it holds is written there now",
            self._where,
            self._disk.directory,
        )
        self._set_aside()
        return earliest

    def _find_earliest(self, synced: int) -> int:
        """The first offset that the ring has; ``synced`` if it is empty."""
        try:
            found = self._ring.collect(0, 1)
        except OffsetOutOfRange as error:
            return error.earliest
        if found is None:
            return synced
        for piece in found[0]:
            piece.release()
        return found[1]

    def _set_aside(self) -> None:
        """Rename segments that do not lead up to the next record, so that they are not read."""
        for base in bases(self._disk.names()):
            rename_aside(self._disk, segment_file(base), "astray")

    def _fail(self, error: OSError) -> None:
        if not self._is_gone():  # with its files
            self._outage.report(error)


def _find_end_of_files(disk: Disk, synced: int) -> int | None:
    """The offset up to which the segments lead, ``synced`` at most; None: they lead nowhere."""
    there = [base for base in bases(disk.names()) if base <= synced]
    if not there:
        return None if synced else 0
    try:
        return StreamSegment(disk, there[-1]).last(synced)[0]
    except FileError:
        return None


class StreamPartitionWriters:
    """Writes one durable stream, with a thread for each partition, from `start` to `close`.

    ``disk`` is the data directory, ``handle`` the stream's, which this owns. ``groups`` returns
    the state of the groups for the metadata file, ``registry`` the lock under which streams are
    deleted. Raises ShmqError and OSError; a stream that was deleted by then has no files.
    """

    def __init__(
        self,
        disk: Disk,
        handle: Any,
        identity: StreamIdentity,
        sizes: WriteSizes,
        groups: Callable[[], dict[str, Any]] = dict,
        transactions: Notes = NO_TRANSACTIONS,
        registry: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        self.disk = disk
        self._transactions = transactions
        self._registry = registry
        #: Transactions that had been applied when the partitions ended with these offsets.
        self._happened: tuple[frozenset[Id], list[int]] = frozenset(), []
        self.handle = handle
        self.identity = identity
        self.name = identity.name
        self.partitions: list[StreamPartitionWriter] = []
        self._own = disk.under(stream_directory(identity.name, identity.identity))
        self._groups = groups
        self._started = self._stopped = False
        self._threads: list[threading.Thread] = []
        self._sizes = replace(sizes, segment=identity.options["segment_bytes"])
        #: When partitions that could not be added are tried again; 0: none has failed.
        self._grow_at = 0.0
        #: The errno last published to the unwritten partitions, and the number of partitions.
        self._refused = (0, 0)
        self._card = self._prepare()
        try:
            self._grow(handle.logs)
        except BaseException:
            for partition in self.partitions:
                partition.close()
            if self.deleted:
                self._remove_files()
            raise

    @property
    def deleted(self) -> bool:
        """Whether the stream was deleted."""
        return bool(self.handle.control.deleted)

    def start(self) -> None:
        """Start the threads; `grow` tries again for those that cannot start now."""
        self._started = True
        ready, self.partitions = self.partitions, []
        try:
            for partition in ready:
                self._add_partition(partition)
        except OSError:
            for partition in ready[len(self.partitions) :]:
                partition.close()
        self.grow()  # which logs what is still wrong

    def grow(self) -> None:
        """Begin to write new partitions as soon as the older ones are completely on disk.

        If the disk or the machine refuses, the callers that wait for them get the error.
        """
        if self.deleted or time.monotonic() < self._grow_at:
            return
        self._follow()
        try:
            logs = self.handle.logs[: self.handle.partitions]
            if len(logs) == len(self.partitions):
                return
            self._grow(logs)
            failed = (one.error for one in self.partitions if one.error is not None)
            refusal = next((error.errno or errno.EIO for error in failed), 0)
        except LockTimeout:
            return
        except (ShmqError, OSError) as error:
            if self.deleted:
                return
            if not self._grow_at:
                first = len(self.partitions)
                log.error(
                    "stream %s: its partitions from %d on are not kept: %s", self.name, first, error
                )
            refusal = getattr(error, "errno", None) or errno.EIO
            self._grow_at = time.monotonic() + RETRY
        else:
            self._grow_at = 0.0
        self._publish_error(refusal)

    def note_groups(self) -> None:
        """Write the groups' offsets to the metadata file, if they changed.

        Raises StreamDeleted and OSError.
        """
        if self.deleted:
            raise StreamDeleted(f"stream {self.name!r} was deleted")
        part: Part = ("groups", self.name, self.identity.identity)
        happened = self._transactions.happened(part)
        card = replace(self._card, groups=self._groups())
        if card != self._card:
            self._transactions.note()
        self._write_card(card)
        self._transactions.done(part, happened)

    def tell_transactions(self) -> None:
        """Report transactions as done once all records appended by then are on disk.

        Raises StreamDeleted.
        """
        part: Part = ("stream", self.name, self.identity.identity)
        logs = self.handle.logs
        happened, ends = self._happened
        if happened and all(log.synced >= end for log, end in zip(logs, ends, strict=False)):
            self._transactions.done(part, happened)
            happened = frozenset()
        if not happened:
            happened = self._transactions.happened(part)
            self._happened = happened, [log.bounds()[1] for log in logs] if happened else []

    @contextlib.contextmanager
    def held(self) -> Iterator[list[tuple[str, int]]]:
        """Publish nothing in the block; gives the files, below the data directory, with bytes.

        The metadata file comes first: only partitions that it has are included.
        """
        identity = self.identity.identity
        with contextlib.ExitStack() as every:
            card = self._own.path(CARD)
            files = [(f"{stream_directory(self.name, identity)}/{CARD}", card.stat().st_size)]
            for number, partition in enumerate(self.partitions[: self._card.eras[-1].end]):
                every.enter_context(partition.held())
                below = partition_directory(self.name, identity, number)
                files += [(f"{below}/{name}", size) for name, size in partition.parts()]
            yield files

    def stop(self) -> None:
        """Let the threads write the rest and end; `close` waits for that."""
        self._stopped = True

    def close(self) -> None:
        """Write the rest, and detach; remove the files of a deleted stream. Raises OSError."""
        self.stop()
        self._write_out()
        for partition in self.partitions:
            partition.close()
        try:
            with contextlib.suppress(StreamDeleted):
                self.note_groups()
            if self.deleted:
                self._remove_files()
        finally:
            self.handle.close()

    def _remove_files(self) -> None:
        """Remove the files of the deleted stream. Raises OSError."""
        for kind in ("stream", "groups"):
            self._transactions.forget((kind, self.name, self.identity.identity))
        erase_stream(self.disk, self.name, self.identity.identity)

    # ---- the metadata file ----

    def _follow(self) -> None:
        """Write with the stream's options of now, once the metadata file has them."""
        control = self.handle.control
        wanted = control.alterations
        if wanted == control.stored:
            return
        options = {**control.options, "partitions": self.identity.options["partitions"]}
        self.identity = replace(self.identity, options=options)
        try:
            write_card(self._own, self.identity, self._card, self._hold_registry())
        except (OSError, ShmqError) as error:
            log.error("stream %s: its options cannot be written: %s", self.name, error)
            self._grow_at = time.monotonic() + RETAIN
            return
        self._sizes = replace(self._sizes, segment=options["segment_bytes"])
        for partition in self.partitions:
            partition.follow(self.identity, self._sizes)
        control.stored = wanted

    def _prepare(self) -> StreamCard:
        """Create the directory; return its metadata, empty if there is none yet."""
        self._own.make()
        self._own.sync_directory()
        try:
            card = read_card(self._own)
        except FileError as error:
            log.error("stream %s: its metadata file is rewritten: %s", self.name, error)
            card = None
        return StreamCard({}, []) if card is None else card[1]

    def _write_card(self, card: StreamCard) -> None:
        """Write the metadata file, durably, if it changed. Raises StreamDeleted and OSError."""
        if card != self._card:
            write_card(self._own, self.identity, card, self._hold_registry())
            self._card = card

    @contextlib.contextmanager
    def _hold_registry(self) -> Iterator[None]:
        """Hold the registry lock: a deletion removes the metadata file before or afterwards.

        A metadata file that came after the removal would be a stream on disk whose name is taken.
        """
        with self._registry():
            if self.deleted:
                raise StreamDeleted(f"stream {self.name!r} was deleted")
            yield

    # ---- its partitions ----

    def _grow(self, logs: Sequence[WrittenPartition]) -> None:
        """Begin to write those partitions that may be written now. Raises ShmqError and OSError."""
        eras = _list_writable_generations(logs)
        options = {**self.identity.options, "partitions": eras[-1].count}
        self.identity = replace(self.identity, options=options)
        self._write_card(replace(self._card, eras=eras))
        for kind in ("stream", "groups"):
            self._transactions.begun((kind, self.name, self.identity.identity))
        for number in range(len(self.partitions), eras[-1].end):
            self._add_partition(self._open_partition(number))

    def _add_partition(self, partition: StreamPartitionWriter) -> None:
        """Add the partition, with a thread if this was started.

        Raises OSError; the partition is closed then.
        """
        try:
            if self._started:
                self._start_thread(partition)
        except BaseException:
            partition.close()
            self._refused = 0, 0  # the new writer had published 0, so publish the error again
            raise
        self.partitions.append(partition)

    def _open_partition(self, number: int) -> StreamPartitionWriter:
        below = self.disk.under(partition_directory(self.name, self.identity.identity, number))
        below.make()
        return StreamPartitionWriter(
            below,
            self.identity,
            number,
            self.handle.logs[number],
            self._sizes,
            lambda: self.deleted,
            self._transactions,
        )

    def _publish_error(self, refusal: int) -> None:
        """Publish the errno to the partitions that are not written yet; 0: no error."""
        logs = self.handle.logs
        if self._refused != (refusal, len(logs)):
            for came in logs[len(self.partitions) :]:
                came.fail(refusal)
            self._refused = refusal, len(logs)

    # ---- the threads ----

    def _start_thread(self, partition: StreamPartitionWriter) -> None:
        """Start the thread of the next partition. Raises OSError."""
        name = f"{self.name}/{len(self.partitions)}"
        thread = threading.Thread(target=self._write_commits, args=(partition,), name=name)
        try:
            thread.start()
        except RuntimeError as error:
            what = f"{error}: allow the process more of them (ulimit -u, pids.max)"
            raise OSError(errno.EAGAIN, what) from None
        self._threads.append(thread)

    def _write_commits(self, partition: StreamPartitionWriter) -> None:
        while not self._stopped and not self.deleted:
            if not partition.step():
                if partition.error is None:
                    self._await_records(partition)
                else:
                    wait_for_retry(lambda: self._stopped or self.deleted)
        end = time.monotonic() + LAST
        while not self.deleted and partition.step() and time.monotonic() < end:
            continue  # write what was there when it was stopped

    def _write_out(self) -> None:
        """Wait for the threads to end, also those of partitions that may only now be written."""
        ended = 0
        while ended < len(self._threads):
            for thread in self._threads[ended:]:
                thread.join()
                ended += 1
            if not self.deleted:
                self._grow_at = 0.0  # at once
                self.grow()

    def _await_records(self, partition: StreamPartitionWriter) -> None:
        try:
            partition.attend()
        except ShmqError as error:
            log.debug("stream %s: %s", self.name, error)


def _list_writable_generations(logs: Sequence[WrittenPartition]) -> list[Generation]:
    """The generations that may be written: all partitions before them are sealed and on disk."""
    eras = eras_among(logs)
    finished = 0
    while finished < len(logs) and logs[finished].finished:
        finished += 1
    return [era for era in eras if era.begin <= finished]
