"""A durable stream: what is appended to its partitions is written, synced, and published.

While one commit of a partition is being synced the next one gathers in its ring, and goes out
whole with the next write and the next sync. So the disk sets the pace, and how many share a
sync. The ring gives up nothing that is not published.

Partitions that come by a repartition are kept once all that is in those before them is on disk,
and the card tells of them before anything of theirs is written. So no record of a key is on disk
without those before it, and whatever stops, the files are of one shape.
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

from shmq.errors import FileError, OffsetOutOfRange, ShmqError
from shmq.persistence.stream_journal import Commit, StreamJournal
from shmq.persistence.transaction_notes import NO_NOTES, Notes
from shmq.storage.disk import Disk
from shmq.storage.limits import Limits
from shmq.storage.partition_generation import Generation, eras_among
from shmq.storage.paths import free_name
from shmq.storage.stream_erase import erase_stream
from shmq.storage.stream_identity import StreamIdentity
from shmq.storage.stream_meta import StreamCard, read_card, write_card
from shmq.storage.stream_paths import (
    CARD,
    PRODUCERS,
    bases,
    partition_directory,
    segment_file,
    stream_directory,
)
from shmq.storage.stream_segment import StreamSegment
from shmq.storage.transaction_file import Id, Part

__all__ = ["StreamPartitionWriter", "StreamPartitionWriters", "WrittenPartition"]

log = logging.getLogger("shmq")

#: After a failure the disk is tried again this often, in seconds.
RETRY: Final = 0.5
#: The longest sleep, in seconds.
LONGEST: Final = 0.2
#: How long the last commits of a partition may take at the end, in seconds.
LAST: Final = 10.0
#: How often it is looked which segments are old, in seconds.
RETAIN: Final = 1.0


class WrittenPartition(Protocol):
    """A partition in shared memory, as far as its writer needs it: ``_log.Partition``."""

    @property
    def synced(self) -> int:
        """Every offset before it is on disk, as was published."""

    @property
    def behind(self) -> int:
        """The first partition of its era."""

    @property
    def created_at(self) -> int:
        """When it was made, in ns since 1970."""

    @property
    def finished(self) -> bool:
        """Whether nothing is appended to it any more, and all that was is on disk."""

    def collect(
        self, offset: int, most_bytes: int
    ) -> tuple[Sequence[memoryview], int, int, int, int] | None:
        """Whole entries from ``offset`` on: pieces, first and next offset, time, how many."""

    def publish(self, offset: int) -> None:
        """Every offset before it is on disk; whoever waits for that wakes up."""

    def fail(self, code: int) -> None:
        """The disk refuses with that errno; 0: no longer."""

    def await_entries(self, offset: int, timeout: float) -> bool:
        """Sleep until there is something behind ``offset``; whether there is."""


class StreamPartitionWriter:
    """One partition. `step` writes a commit; nothing runs by itself. For one thread."""

    def __init__(
        self,
        disk: Disk,
        identity: StreamIdentity,
        partition: int,
        ring: WrittenPartition,
        sizes: Limits,
        gone: Callable[[], bool] = lambda: False,
        transactions: Notes = NO_NOTES,
    ) -> None:
        self._ring = ring
        self._gone = gone
        self._transactions = transactions
        self._part: Part = ("stream", identity.name, identity.identity)
        #: Transactions without which old records may go; None: none is asked for.
        self._before: frozenset[Id] | None = None
        self._sizes = sizes
        self._where = f"partition {partition} of stream {identity.name}"
        self._disk = disk
        begin = ring.synced
        if _is_astray(disk, begin):
            begin = self._begin_again(begin)
        self.journal = StreamJournal(disk, identity, partition, begin, sizes)
        self._bytes: int | None = identity.options.get("retention_bytes")
        self._seconds: float | None = identity.options.get("retention_seconds")
        self._retain_at = 0.0
        self._failure: str | None = None
        self._lock = threading.RLock()
        #: The errno with which the disk refused what was last written; 0: it took it.
        self.error = 0
        self.journal.begin()
        self._ring.fail(0)

    @property
    def well(self) -> bool:
        """Whether the disk took what was last written."""
        return not self.error

    def attend(self) -> None:
        """Sleep until there is something to write, or to look after."""
        self._ring.await_entries(self.journal.next, LONGEST)

    def step(self) -> bool:
        """Write one commit, if there is anything to write; whether one was written.

        If the disk refuses, the partition says so, and the next call tries again.
        """
        with self._lock:
            return self._step()

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Nothing is written, published or removed while this is held."""
        return self._lock

    def parts(self) -> list[tuple[str, int]]:
        """The names of its files, each with how many bytes count; while it is `held`."""
        parts = [(segment_file(base), size) for base, size in self.journal.lengths]
        if PRODUCERS in self._disk.names():
            parts.append((PRODUCERS, self._disk.path(PRODUCERS).stat().st_size))
        return parts

    def _step(self) -> bool:
        try:
            written = self._commit()
            self._retain()
        except OSError as error:
            self._fail(error.errno or errno.EIO, error.strerror or str(error))
            return False
        except (ShmqError, MemoryError) as error:
            self._fail(errno.EIO, str(error) or type(error).__name__)
            return False
        return written

    def close(self) -> None:
        """Write no more."""
        self.journal.abandon()

    def _commit(self) -> bool:
        found = self._collect()
        if found is None:
            self._recover()
            return False
        pieces, first, behind, _, _ = found
        try:
            self._transactions.note()
            self.journal.append(Commit(pieces, first, behind))
        finally:
            for piece in pieces:
                piece.release()
        self._recover()
        self._publish()
        if self.journal.is_long:
            self.journal.roll()
        return True

    def _collect(self) -> tuple[Sequence[memoryview], int, int, int, int] | None:
        try:
            return self._ring.collect(self.journal.next, self._sizes.commit)
        except OffsetOutOfRange as error:
            # Only where files were gone that had been written: what follows is kept at least.
            log.error("%s: records up to %d are on no disk", self._where, error.earliest)
            self._set_aside()
            self.journal = self.journal.anew(error.earliest)
            return self._ring.collect(self.journal.next, self._sizes.commit)

    def _publish(self) -> None:
        if self.journal.next > self._ring.synced:
            self._ring.publish(self.journal.next)

    def _retain(self) -> None:
        now = time.monotonic()
        if now < self._retain_at or (self._bytes is None and self._seconds is None):
            return
        self._retain_at = now + RETAIN
        left = self._transactions.open(self._part)
        if self._before is None:
            self._before = left
        if self._before & left:
            return  # recovery would put what goes now anew
        self._before = None
        before = None if self._seconds is None else time.time_ns() - int(self._seconds * 1e9)
        self.journal.retain(self._bytes, before)

    def _begin_again(self, synced: int) -> int:
        """What was written is not there: the ring's records are written anew, all of them."""
        log.warning(
            "%s: what was written of it is not in %s; all that it holds is written there now",
            self._where,
            self._disk.directory,
        )
        self._set_aside()
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
        """Segments that do not lead up to what comes now are no longer read."""
        for base in bases(self._disk.names()):
            there = free_name(f"{segment_file(base)}.astray", self._disk.names())
            self._disk.rename(segment_file(base), there)
            self._disk.sync_directory()

    def _fail(self, code: int, what: str) -> None:
        if self._gone():
            return  # with its files
        if self._failure != what:
            log.error(
                "%s cannot be written to %s: %s; it is tried again every %s s, and nothing is "
                "confirmed until then",
                self._where,
                self._disk.directory,
                what,
                RETRY,
            )
            self._ring.fail(code)
        self._failure, self.error = what, code

    def _recover(self) -> None:
        if self._failure is not None:
            log.warning("%s is written to %s again", self._where, self._disk.directory)
            self._failure, self.error = None, 0
            self._ring.fail(0)


def _is_astray(disk: Disk, synced: int) -> bool:
    """Whether the segments do not lead up to what was published."""
    if not synced:
        return False
    there = [base for base in bases(disk.names()) if base <= synced]
    if not there:
        return True
    try:
        return StreamSegment(disk, there[-1]).last(synced)[0] != synced
    except FileError:
        return True


class StreamPartitionWriters:
    """One durable stream, with a thread for each partition that is kept, from `start` to `close`.

    ``disk`` is the data directory, ``handle`` the stream's, which this owns. ``groups`` gives
    what is to be on the card: whatever is of the groups' making. Raises ShmqError and OSError.
    """

    def __init__(
        self,
        disk: Disk,
        handle: Any,
        identity: StreamIdentity,
        sizes: Limits,
        groups: Callable[[], dict[str, Any]] = dict,
        transactions: Notes = NO_NOTES,
    ) -> None:
        self.disk = disk
        self._transactions = transactions
        #: Transactions that had happened when the partitions ended with these offsets.
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
        #: When partitions that could not be kept are tried again; 0: none has failed.
        self._grow_at = 0.0
        #: The errno that the last of so many partitions were told of.
        self._refused = (0, 0)
        self._told = self._settle_in()
        try:
            self._grow(handle.logs)
        except BaseException:
            for partition in self.partitions:
                partition.close()
            raise

    @property
    def deleted(self) -> bool:
        """Whether the stream is no more."""
        return bool(self.handle.control.deleted)

    def start(self) -> None:
        """Begin to write, in threads; `grow` asks again for those that cannot be had now."""
        self._started = True
        ready, self.partitions = self.partitions, []
        try:
            for partition in ready:
                self._take(partition)
        except OSError:
            for partition in ready[len(self.partitions) :]:
                partition.close()
        self.grow()  # which tells what is wrong, if it still is

    def grow(self) -> None:
        """Keep partitions that came as soon as all before them is on disk.

        Until then, and where the disk or the machine refuses, whoever waits for them is told
        what is wrong.
        """
        if self.deleted or time.monotonic() < self._grow_at:
            return
        try:
            logs = self.handle.logs[: self.handle.partitions]
            if len(logs) == len(self.partitions):
                return
            self._grow(logs)
            refusal = next((one.error for one in self.partitions if one.error), 0)
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
        self._refuse(refusal)

    def note_groups(self) -> None:
        """Have the card say how far the groups are, if that has changed. Raises OSError."""
        part: Part = ("groups", self.name, self.identity.identity)
        happened = self._transactions.happened(part)
        card = replace(self._told, groups=self._groups())
        if card != self._told:
            self._transactions.note()
        self._tell(card)
        self._transactions.done(part, happened)

    def tell_transactions(self) -> None:
        """What they appended is on disk, once all that was appended by then is."""
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
        """Nothing is published meanwhile; the files, from the data directory, with their bytes.

        The card comes first: what it does not tell of is no part of it.
        """
        identity = self.identity.identity
        with contextlib.ExitStack() as every:
            card = self._own.path(CARD)
            files = [(f"{stream_directory(self.name, identity)}/{CARD}", card.stat().st_size)]
            for number, partition in enumerate(self.partitions[: self._told.eras[-1].end]):
                every.enter_context(partition.held())
                below = partition_directory(self.name, identity, number)
                files += [(f"{below}/{name}", size) for name, size in partition.parts()]
            yield files

    def stop(self) -> None:
        """Have the threads write what is left, and end; `close` waits for that."""
        self._stopped = True

    def close(self) -> None:
        """Write what is left, and detach; the files of a deleted one go. Raises OSError."""
        self.stop()
        self._write_out()
        for partition in self.partitions:
            partition.close()
        gone = self.deleted
        try:
            if gone:
                for kind in ("stream", "groups"):
                    self._transactions.forget((kind, self.name, self.identity.identity))
                erase_stream(self.disk, self.name, self.identity.identity)
            else:
                self.note_groups()
        finally:
            self.handle.close()

    # ---- the card ----

    def _settle_in(self) -> StreamCard:
        """Have its directory; what its card says, which there may not be yet."""
        self._own.make()
        self._own.sync_directory()
        try:
            card = read_card(self._own)
        except FileError as error:
            log.error("stream %s: its card is written anew: %s", self.name, error)
            card = None
        return StreamCard({}, []) if card is None else card[1]

    def _tell(self, card: StreamCard) -> None:
        """Have the card say this, durably, unless it does. Raises OSError."""
        if card != self._told:
            write_card(self._own, self.identity, card)
            self._told = card

    # ---- its partitions ----

    def _grow(self, logs: Sequence[WrittenPartition]) -> None:
        """Keep what is to be kept of these by now. Raises ShmqError and OSError."""
        eras = _ripe(logs)
        options = {**self.identity.options, "partitions": eras[-1].count}
        self.identity = replace(self.identity, options=options)
        self._tell(replace(self._told, eras=eras))
        for kind in ("stream", "groups"):
            self._transactions.begun((kind, self.name, self.identity.identity))
        for number in range(len(self.partitions), eras[-1].end):
            self._take(self._partition(number))

    def _take(self, partition: StreamPartitionWriter) -> None:
        """Have it among those that are kept: once started, none is without a thread.

        Raises OSError; it is closed then.
        """
        try:
            if self._started:
                self._run(partition)
        except BaseException:
            partition.close()
            self._refused = 0, 0  # it was told that all is well
            raise
        self.partitions.append(partition)

    def _partition(self, number: int) -> StreamPartitionWriter:
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

    def _refuse(self, refusal: int) -> None:
        """Tell whoever waits for partitions that are not kept; 0: there is nothing to tell."""
        logs = self.handle.logs
        if self._refused != (refusal, len(logs)):
            for came in logs[len(self.partitions) :]:
                came.fail(refusal)
            self._refused = refusal, len(logs)

    # ---- the threads ----

    def _run(self, partition: StreamPartitionWriter) -> None:
        """Begin to write the next partition. Raises OSError."""
        name = f"{self.name}/{len(self.partitions)}"
        thread = threading.Thread(target=self._follow, args=(partition,), name=name)
        try:
            thread.start()
        except RuntimeError as error:
            what = f"{error}: allow the process more of them (ulimit -u, pids.max)"
            raise OSError(errno.EAGAIN, what) from None
        self._threads.append(thread)

    def _follow(self, partition: StreamPartitionWriter) -> None:
        while not self._stopped and not self.deleted:
            if not partition.step():
                if partition.well:
                    self._attend(partition)
                else:
                    self._rest()
        end = time.monotonic() + LAST
        while not self.deleted and partition.step() and time.monotonic() < end:
            continue  # what was there when it was stopped

    def _write_out(self) -> None:
        """Return once the threads have ended, those of partitions that can now be kept too."""
        ended = 0
        while ended < len(self._threads):
            for thread in self._threads[ended:]:
                thread.join()
                ended += 1
            if not self.deleted:
                self._grow_at = 0.0  # at once
                self.grow()

    def _attend(self, partition: StreamPartitionWriter) -> None:
        try:
            partition.attend()
        except ShmqError as error:
            log.debug("stream %s: %s", self.name, error)

    def _rest(self) -> None:
        end = time.monotonic() + RETRY
        while not self._stopped and not self.deleted and time.monotonic() < end:
            time.sleep(0.02)


def _ripe(logs: Sequence[WrittenPartition]) -> list[Generation]:
    """The eras that may be kept: all that is in the partitions before them is on disk."""
    eras = eras_among(logs)
    finished = 0
    while finished < len(logs) and logs[finished].finished:
        finished += 1
    return [era for era in eras if era.begin <= finished]
