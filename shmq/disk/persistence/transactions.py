"""Transactions on their way to disk: each is noted as a whole before any part of it is written.

A committed transaction has a file in memory (`shmq.client.transaction.transaction_log`) from
before its first step until the writer has seen that all of it was applied. A writer thread calls
`note` between collecting from a queue, a partition or the groups of a stream and writing that: if
it has collected any part of a transaction, the whole transaction is on disk first. So a power cut
leaves all of it or nothing: recovery completes it (`shmq.disk.persistence.transaction_recovery`).

A part of a transaction is done when its queue, stream or groups are on disk as they were after
the transaction was applied. Then the part is marked. Until then a journal keeps the records by
which recovery knows that the part was written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Final

from shmq.client.transaction.transaction_log import noted, read_transactions
from shmq.disk.storage import transaction_file
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.transaction_file import (
    Id,
    Part,
    StoredTransaction,
    TransactionFile,
    parts_of,
)
from shmq.errors import NoSuchQueue, NoSuchStream, SegmentError
from shmq.host.namespace import streams
from shmq.host.namespace.namespace import Namespace

log = logging.getLogger("shmq")

#: How long `note` waits for the first file of a queue or stream, in seconds.
_BEGUN: Final = 1.0
_PAUSE: Final = 0.005
#: From this length on, in bytes, the file is rewritten with only the open transactions.
_LONG: Final = 1 << 20
#: How often to check whether the queues and streams of transactions still exist, in seconds.
_LOOK: Final = 1.0


class Notes:
    """The transactions as the writers of queues and streams see them; here there are none."""

    def begun(self, part: Part) -> None:
        """Record that the part has a file. A part without files counts as deleted."""

    def note(self) -> None:
        """Write every transaction committed by now to disk. Raises OSError.

        Writers call it between collecting something and writing it.
        """

    def happened(self, part: Part) -> frozenset[Id]:  # noqa: ARG002
        """Transactions that are applied in memory, with this part not known to be on disk."""
        return frozenset()

    def open(self, part: Part) -> frozenset[Id]:  # noqa: ARG002
        """Noted transactions with this part, which is not marked as done."""
        return frozenset()

    def done(self, part: Part, which: Collection[Id]) -> None:
        """Record that the part of these transactions is on disk."""

    def mark(self) -> None:
        """Mark the parts that are done in the file on disk. Raises OSError."""

    def forget(self, part: Part) -> None:
        """Record that the queue, stream or groups of the part were deleted."""


NO_TRANSACTIONS: Final = Notes()


class Transactions(Notes):
    """The transactions of a namespace that its writer has noted, or has to. For any thread."""

    def __init__(self, namespace: Namespace, disk: Disk) -> None:
        self._namespace = namespace
        self._disk = disk
        self._lock = threading.RLock()
        self._file = TransactionFile(disk)
        self._loaded = False
        self._open: dict[Id, StoredTransaction] = {}
        #: Those of `_open` by their parts.
        self._of: defaultdict[Part, set[Id]] = defaultdict(set)
        #: Of these, the ones that are completely applied in memory, and have this part not done.
        self._happened: defaultdict[Part, set[Id]] = defaultdict(set)
        #: Parts that are done, and not marked on disk yet.
        self._done: set[tuple[Id, Part]] = set()
        #: Parts that have files, are deleted, or were waited for in vain.
        self._begun: set[Part] = set()
        self._look_at = 0.0
        #: What was announced before the last look that found no uncommitted transaction.
        self._seen: bytes | None = None
        #: Whether the last look found one.
        self._is_uncommitted = False

    # ---- for writers ----

    def note(self) -> None:
        # Waits for the first files of new queues and streams. Does not look if nothing was
        # announced since the last look: a transaction is announced before it commits, so before a
        # writer can collect any part of it.
        announced = self._namespace.roles.announced
        if announced is not None and announced == self._seen:
            return
        until = time.monotonic() + _BEGUN
        while True:
            with self._lock:
                new = self._poll()
                if time.monotonic() >= until:
                    self._begun |= {part for one in new for part in one.parts}
                if all(self._has_started(part) for one in new for part in one.parts):
                    self._write(new)
                    self._seen = None if self._is_uncommitted else announced
                    return
            time.sleep(_PAUSE)  # the part's writer has not created its first file yet

    def begun(self, part: Part) -> None:
        with self._lock:
            self._begun.add(part)

    def happened(self, part: Part) -> frozenset[Id]:
        if not self._happened:  # as nearly always, before each commit
            return frozenset()
        with self._lock:
            return frozenset(self._happened.get(part, ()))

    def open(self, part: Part) -> frozenset[Id]:
        with self._lock:
            self._load()
            return frozenset(self._of.get(part, ()))

    def done(self, part: Part, which: Collection[Id]) -> None:
        if which:
            with self._lock:
                known = self._of.get(part, set()).intersection(which)
                self._done |= {(each, part) for each in known}
                if part in self._happened:
                    self._happened[part] -= known

    def forget(self, part: Part) -> None:
        self.done(part, self.open(part))

    def mark(self) -> None:
        with self._lock:
            self._load()
            self._poll()
            if self._open and time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + _LOOK
                self._forget_the_gone()
            if self._done:
                self._write([])

    def close(self) -> None:
        """Mark the parts that are done; remove the file if no part is left. Raises OSError."""
        with self._lock:
            try:
                self.mark()
                if not self._open:
                    self._file.remove()
            finally:
                self._file.abandon()

    # ---- the files in memory ----

    def _poll(self) -> list[StoredTransaction]:
        """The newly committed transactions. Removes the files of noted ones that are applied."""
        self._load()
        self._is_uncommitted = False
        new = []
        for of, path in noted(self._namespace).items():
            try:
                record, happened = read_transactions(path)
            except FileNotFoundError:
                continue
            except SegmentError as error:
                log.error("a transaction is not noted on disk: %s", error)
                path.unlink(missing_ok=True)
                continue
            if record is None:
                self._is_uncommitted = True
                self._drop_if_dead(of, path)
            elif of in self._open:
                if happened:
                    self._note_happened(self._open[of])
                    path.unlink(missing_ok=True)
            else:
                new.append(StoredTransaction(of, record["durable"], parts_of(record["durable"])))
        return sorted(new, key=lambda one: one.id)

    def _drop_if_dead(self, of: Id, path: Path) -> None:
        """Remove the file of a transaction that was not committed, if its process has died."""
        if not self._namespace.processes.is_alive(of[0]):
            path.unlink(missing_ok=True)

    def _load(self) -> None:
        """Read what the last writer noted. Those without a file in memory have been applied."""
        if self._loaded:
            return
        waiting = noted(self._namespace)
        for one in transaction_file.read_noted(self._disk):
            self._note_open(one)
            if one.id not in waiting:
                self._note_happened(one)
        self._loaded = True

    def _note_open(self, one: StoredTransaction) -> None:
        self._open[one.id] = one
        for part in one.parts:
            self._of[part].add(one.id)

    def _note_happened(self, one: StoredTransaction) -> None:
        for part in one.parts:
            if (one.id, part) not in self._done:
                self._happened[part].add(one.id)

    def _note_done(self, of: Id, part: Part) -> None:
        one = self._open[of]
        one.parts.discard(part)
        self._done.discard((of, part))
        self._of[part].discard(of)
        if not self._of[part]:
            del self._of[part]
            self._happened.pop(part, None)
        if not one.parts:
            del self._open[of]

    def _has_started(self, part: Part) -> bool:
        """Whether the part has a file, or its queue or stream was deleted."""
        if part not in self._begun and not self._exists(part):
            self._begun.add(part)
        return part in self._begun

    def _exists(self, part: Part) -> bool:
        kind, name, identity = part
        try:
            if kind == "queue":
                segment = self._namespace.look_at(name)
                return bool(segment and not segment.deleted and segment.hash_key == identity)
            control = streams.look_at(self._namespace, name)
        except (NoSuchQueue, NoSuchStream):
            return False
        except SegmentError:
            return True
        return control is not None and not control.deleted and control.identity == identity

    def _forget_the_gone(self) -> None:
        for part in list(self._of):
            if not self._exists(part):
                self.forget(part)

    # ---- the file on disk ----

    def _write(self, new: list[StoredTransaction]) -> None:
        if not new and not self._done:
            return
        done = set(self._done)
        if self._file.is_open and self._file.end < _LONG:
            done = set() if new else done  # a writer waits for the new ones: marks have time
            self._file.add(new, sorted(done))
        else:
            every = [*self._open.values(), *new]
            self._file.replace([left for one in every if (left := _select_left(one, done)).parts])
        for one in new:
            self._note_open(one)
        for of, part in done:
            self._note_done(of, part)


def _select_left(one: StoredTransaction, done: set[tuple[Id, Part]]) -> StoredTransaction:
    return StoredTransaction(
        one.id, one.work, {part for part in one.parts if (one.id, part) not in done}
    )
