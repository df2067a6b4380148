"""The writer of one queue's journal: it collects changes, writes, syncs and publishes them.

Group commit: while one commit is being synced, the changes for the next one gather in the queue,
and go out together with one write and one sync. So the disk sets the pace, and how many
operations share a sync.

A message may move between two queues with separate journals. Its settlement is not written until
its copy is in the target queue's journal: so whichever journal loses its end, one of the two
survives. If both do, the copy counts. :class:`~shmq.disk.persistence.transfers.Transfers` knows
which copies have arrived.
"""

from __future__ import annotations

import errno
import logging
import time
from typing import Final

from shmq.client.local.queue import LocalQueue
from shmq.disk.persistence.journal import Journal
from shmq.disk.persistence.outage import Outage
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.snapshot import Snapshot, SnapshotWriter
from shmq.disk.persistence.transactions import NO_TRANSACTIONS, Notes
from shmq.disk.persistence.transfers import Transfers
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.transaction_file import Id, Part
from shmq.errors import LockTimeout
from shmq.model.codec.codecs import unpack_properties
from shmq.native import _core

log = logging.getLogger("shmq")

#: How long a commit that no caller waits for waits for more, in seconds: messages that are
#: acknowledged in the meantime are never written.
LINGER: Final = 0.005
#: How often the writer checks whether moved messages have arrived, in seconds.
LOOK: Final = 0.05
#: How long a commit waits for as many puts as the last one confirmed, since their callers may put
#: again at once; a fraction of the time that the last write and sync took.
PATIENCE: Final = 0.2
#: The longest sleep, in seconds.
LONGEST: Final = 1.0
#: A journal is compacted when it is longer than this many times what the queue holds.
SPARSE: Final = 2


def target_of(reason: int, meta: bytes, dead_letter: str | None) -> str | None:
    """The queue a message was moved to: a dead letter to ``dead_letter``, a redriven one back."""
    if reason:
        return dead_letter
    letter = unpack_properties(meta).get("dead")
    return letter["queue"] if letter else None


class JournalWriter(SnapshotWriter):
    """Writes one queue with durability "journal". Any thread may call any method.

    Nothing runs by itself: `step` writes one commit, and `attend` waits until there is one.
    """

    def __init__(
        self,
        disk: Disk,
        handle: LocalQueue,
        sizes: WriteSizes,
        transfers: Transfers,
        look: float = LOOK,
        transactions: Notes = NO_TRANSACTIONS,
    ) -> None:
        super().__init__(disk, handle, sizes, transfers)
        self._transactions = transactions
        self._part: Part = ("queue", self.name, self.key)
        #: Transactions that had been applied before the last collection, and the last put by then.
        self._happened: frozenset[Id] = frozenset()
        self._last = 0
        #: Transactions that may be in the segments that the next snapshot replaces.
        self._before: frozenset[Id] = frozenset()
        self.follower = _core.Follower(handle)
        self._outage = Outage(f"queue {self.name}", disk.directory, self.follower.fail)
        self.journal = Journal(disk, lambda: self.identity, *self.follower.position, sizes)
        self._look = look
        self._look_at = 0.0
        #: Collected and claimed, but not on disk yet.
        self._unwritten: _core.Collected | None = None
        self._sealed_with = 0
        self._last_puts = 0
        self._patience = 0.0
        self._withdrawn = False
        self._more = False
        #: Why the last commit was put off: a stopped process holds a lock. Not the disk's fault.
        self.held_up: LockTimeout | None = None
        transfers.enter(self)
        if self.journal.segment:
            transactions.begun(self._part)

    @property
    def pending(self) -> bool:
        """Whether there is more to write than the last commit took."""
        return self._more or self._unwritten is not None

    @property
    def error(self) -> OSError | None:
        """Why the last write failed; None: it succeeded."""
        return self._outage.error

    @property
    def due(self) -> bool:
        """Whether a snapshot has to replace the journal now."""
        journal, live = self.journal.size, self.follower.live_bytes
        return self.journal.is_broken or journal > max(SPARSE * live, 2 * self.sizes.segment)

    @property
    def files_missing(self) -> bool:
        """Whether the queue's files are not in this directory.

        It was written elsewhere, or its files were removed. A segment that a snapshot replaced
        is not missing.
        """
        return self.number <= self.journal.segment and not self.journal.is_whole()

    def attend(self) -> None:
        """Sleep until there is something to do, or the disk has to be tried again."""
        if self._more:
            return
        longest = LOOK if self.follower.held else LONGEST
        self.follower.wait(longest, LINGER, self._last_puts, self._patience)

    def step(self) -> bool:
        """Write one commit, if there is anything to write; return whether one was written.

        If the disk refuses, the commit is kept, the queue records the error, and the next call
        tries again. While a stopped process holds a lock, callers that wait for the disk go on
        waiting.
        """
        with self._lock:
            if self.closed:
                return False
            try:
                written = self._commit()
                self.held_up = None
                return written
            except LockTimeout as error:  # an OSError, too
                self._put_off(error)
                return False
            except OSError as error:
                self._fail(error)
                return False

    def refuse(self, error: Exception) -> None:
        """Record that the queue cannot be followed now, for lack of memory or because of damage."""
        with self._lock:
            if isinstance(error, LockTimeout):
                self._put_off(error)
                return
            self._fail(OSError(errno.EIO, str(error) or type(error).__name__))

    def find_arrived(self, source: int, seqs: list[int]) -> set[int]:
        """See :meth:`SnapshotWriter.find_arrived`."""
        return set(seqs) - self.follower.copies_waiting(source, seqs)

    def secure_arrivals(self, source: int) -> bool:  # noqa: ARG002 - it secures all
        """See :meth:`SnapshotWriter.secure_arrivals`."""
        with self._lock:
            self._check_open()
            last, synced = self.handle.last_sequence, self.follower.synced
            if last <= synced or not self._has_arrivals(synced):
                return False
            while self.follower.synced < last:
                if not self.step():
                    raise OSError(errno.EAGAIN, f"queue {self.name!r} is not written yet")
            return True

    def _has_arrivals(self, after: int) -> bool:
        """Whether a message above that sequence number came from another queue."""
        return _core.Scan.of_copies(self.handle, after).read(self.sizes.chunk, 0, 1) is not None

    def settle_arrived(self, target: str) -> bool:
        """See :meth:`SnapshotWriter.settle_arrived`."""
        with self._lock:
            if self.closed:
                return True
            self.step()  # so that all messages moved by now are known
            while slots := self._find_arrived(target):
                self.follower.arrived(slots)
                self.step()
                if self.error is not None or self.held_up is not None:
                    return False
            return self.error is None and self.held_up is None

    def close(self) -> None:
        """See :meth:`SnapshotWriter.close`."""
        self._transfers.leave(self)
        with self._lock:
            self.journal.abandon()
            if self.deleted:
                self._transactions.forget(self._part)
        super().close()

    def _commit(self) -> bool:
        salt = self.journal.ready(self.follower.batch + 1)
        if not self._withdrawn:
            self._transactions.begun(self._part)
            self.follower.withdraw()
            self._withdrawn = True
        if self._unwritten is None:
            self._unwritten = self._collect(salt)
        if self._unwritten is None:
            self._more = False
            self._outage.end()
            self._report_transactions()
            return False
        self._write(self._unwritten, salt)
        return True

    def _collect(self, salt: int) -> _core.Collected | None:
        self._sealed_with = salt
        self._happened = self._transactions.happened(self._part)
        self._last = self.handle.last_sequence if self._happened else 0
        self._release_arrived()
        collected = self.follower.collect(self.sizes.commit, salt)
        if collected is None and self._release_arrived():
            collected = self.follower.collect(self.sizes.commit, salt)
        return collected

    def _write(self, collected: _core.Collected, salt: int) -> None:
        if len(collected.data):
            if self._sealed_with != salt:
                self.follower.seal(salt)
                self._sealed_with = salt
            self._transactions.note()
            began = time.monotonic()
            self.journal.append(collected)
            self._last_puts = collected.puts
            self._patience = (time.monotonic() - began) * PATIENCE
        self._outage.end()
        try:
            self.follower.publish(self.journal.segment, self.journal.offset)
        finally:  # it is on disk, even if freeing its slots failed
            if len(collected.data):
                self.journal.note(collected)
            collected.data.release()
            self._unwritten, self._more = None, collected.more
        self._report_transactions()
        if self.journal.is_long:
            self.journal.roll()

    def _report_transactions(self) -> None:
        """Report transactions done here, if all that was there at the collection is on disk."""
        if self._happened and not self._more and self.follower.synced >= self._last:
            self._transactions.done(self._part, self._happened)

    def _begin(self) -> tuple[Snapshot, _core.Scan]:
        with self._lock:
            number, limit = self.journal.roll(), self.follower.synced
            self._before = self._transactions.open(self._part)
        return Snapshot(self.disk, self.identity, number), _core.Scan(self.handle, limit)

    @property
    def _segments(self) -> Journal:
        return self.journal

    def _secure_moved(self) -> None:
        # A copy that was moved here, and settled since, is only in the segments to be removed.
        # So the original must be settled in its own journal first. What moved away is kept until
        # it has arrived.
        if not self._transfers.settle_all(self):
            raise OSError(errno.EAGAIN, "another queue has not settled moved messages yet")
        self._note_transactions()

    def _note_transactions(self) -> None:
        """Note transactions of which the snapshot has a part, and wait for those before it.

        Raises OSError if one of those still needs the segments that the snapshot replaces.
        """
        self._transactions.note()
        if self._before & self._transactions.open(self._part):
            self._transactions.mark()
            self.step()
            self._transactions.mark()
        if self._before & self._transactions.open(self._part):
            raise OSError(errno.EAGAIN, "a transaction is not on disk as a whole yet")

    def _release_arrived(self) -> bool:
        """Let the next commit settle moved messages that have arrived; whether there are any."""
        if not self.follower.held:
            return False
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + self._look
        slots = self._find_arrived()
        self.follower.arrived(slots)
        return bool(slots)

    def _find_arrived(self, only: str | None = None) -> list[int]:
        """The slots of messages moved to ``only``, or to any queue, that have arrived."""
        by_target: dict[str | None, dict[int, int]] = {}
        for slot, seq, reason, meta in self.follower.moved():
            target = target_of(reason, meta, self.handle.options.dead_letter)
            if only is None or only == target:
                by_target.setdefault(target, {})[seq] = slot
        found = []
        for target, slots in by_target.items():
            arrived = self._transfers.arrived(self.key, target, list(slots))
            found += [slots[seq] for seq in arrived]
        return found

    def _fail(self, error: OSError) -> None:
        if not self.deleted:  # with its files
            self._outage.report(error)

    def _put_off(self, error: LockTimeout) -> None:
        if self.held_up is None:
            log.warning("queue %s is written later: %s", self.name, error)
        self.held_up, self._more = error, True
