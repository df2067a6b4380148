"""Transactions on their way to disk: noted as a whole before anything of them is written.

A committed transaction has a file in memory (`shmq.client.transaction.transaction_log`) from
before it does anything until the writer has seen that all of it has happened. Whoever is about to
write what he has collected from a queue, a partition or the groups of a stream calls `note` in
between: whatever he has collected of a transaction, the transaction is on disk first, with all
that it does. So a power cut leaves all of it or nothing: recovery does what is missing
(`shmq.persistence.transaction_recovery`).

A part of a transaction is done when all that its queue, stream or groups held after the
transaction had happened is on disk. Then it is marked, and nothing is kept any longer because of
it: until then a journal keeps the records by which recovery knows that they were put.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from shmq.client.transaction.transaction_log import noted, read_transactions
from shmq.errors import NoSuchQueue, NoSuchStream, SegmentError
from shmq.namespace import streams
from shmq.namespace.namespace import Namespace
from shmq.storage import transaction_file
from shmq.storage.disk import Disk
from shmq.storage.transaction_file import Id, Part, StoredTransaction, TransactionFile, parts_of

__all__ = ["Transactions"]

log = logging.getLogger("shmq")

#: How long it is waited for until a queue or stream has its first file, in seconds.
_BEGUN: Final = 1.0
_PAUSE: Final = 0.005
#: From so many bytes on the file is written anew, with what is left.
_LONG: Final = 1 << 20
#: How often it is looked whether what a transaction was about is still there, in seconds.
_LOOK: Final = 1.0


class Transactions:
    """Those of a namespace that its writer has noted, or is to note. For any thread."""

    def __init__(self, namespace: Namespace, disk: Disk) -> None:
        self._namespace = namespace
        self._disk = disk
        self._lock = threading.RLock()
        self._file = TransactionFile(disk)
        self._loaded = False
        self._open: dict[Id, StoredTransaction] = {}
        #: Those of which all has happened, in memory.
        self._happened: set[Id] = set()
        #: Parts that are done, and not marked on disk yet.
        self._done: set[tuple[Id, Part]] = set()
        #: What is known to have files, or was waited for in vain.
        self._begun: set[Part] = set()
        self._look_at = 0.0

    # ---- for those who write ----

    def note(self) -> None:
        """Have every transaction that is committed by now on disk. Raises OSError.

        To be called between collecting something and writing it.
        """
        until = time.monotonic() + _BEGUN
        while True:
            with self._lock:
                new = self._look()
                if time.monotonic() >= until:
                    self._begun |= {part for one in new for part in one.parts}
                if all(self._has_begun(part) for one in new for part in one.parts):
                    self._write(new)
                    return
            time.sleep(_PAUSE)  # the one who writes it has not come to it yet

    def begun(self, part: Part) -> None:
        """There is a file of that, until it is deleted: without any it was."""
        with self._lock:
            self._begun.add(part)

    def happened(self, part: Part) -> frozenset[Id]:
        """Transactions of which all has happened, and this part is not known to be on disk."""
        with self._lock:
            return frozenset(
                each
                for each in self._happened
                if part in self._open[each].parts and (each, part) not in self._done
            )

    def open(self, part: Part) -> frozenset[Id]:
        """Transactions that are noted, with this part, and it is not marked."""
        with self._lock:
            self._load()
            return frozenset(each for each, one in self._open.items() if part in one.parts)

    def done(self, part: Part, which: Collection[Id]) -> None:
        """That part of these is on disk."""
        if which:
            with self._lock:
                self._done |= {(each, part) for each in which if each in self._open}

    def forget(self, part: Part) -> None:
        """What that was is no more."""
        self.done(part, self.open(part))

    def mark(self) -> None:
        """Have it on disk which parts are. Raises OSError."""
        with self._lock:
            self._load()
            self._look()
            if self._open and time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + _LOOK
                self._forget_the_gone()
            if self._done:
                self._write([])

    def close(self) -> None:
        """Mark what is done; without anything left there is no file. Raises OSError."""
        with self._lock:
            try:
                self.mark()
                if not self._open:
                    self._file.remove()
            finally:
                self._file.abandon()

    # ---- the files in memory ----

    def _look(self) -> list[StoredTransaction]:
        """Those that were committed since; what has happened is known, and needs no file there."""
        self._load()
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
                self._drop_if_dead(of, path)
            elif of in self._open:
                if happened:
                    self._happened.add(of)
                    path.unlink(missing_ok=True)
            else:
                new.append(StoredTransaction(of, record["durable"], parts_of(record["durable"])))
        return sorted(new, key=lambda one: one.id)

    def _drop_if_dead(self, of: Id, path: Path) -> None:
        """Nothing was committed: it was about to be, or its process died."""
        if not self._namespace.is_alive(of[0]):
            path.unlink(missing_ok=True)

    def _load(self) -> None:
        """What the last writer has noted. It has happened, unless it has a file in memory."""
        if self._loaded:
            return
        waiting = noted(self._namespace)
        for one in transaction_file.read_noted(self._disk):
            self._open[one.id] = one
            if one.id not in waiting:
                self._happened.add(one.id)
        self._loaded = True

    def _has_begun(self, part: Part) -> bool:
        """Whether there is a file of what that is, or it is no more."""
        if part not in self._begun and not self._is_there(part):
            self._begun.add(part)
        return part in self._begun

    def _is_there(self, part: Part) -> bool:
        kind, name, identity = part
        try:
            if kind == "queue":
                return self._namespace.open_segment(name).hash_key == identity
            control = streams.look_at(self._namespace, name)
        except (NoSuchQueue, NoSuchStream):
            return False
        except SegmentError:
            return True
        return control is not None and not control.deleted and control.identity == identity

    def _forget_the_gone(self) -> None:
        parts = {part for one in self._open.values() for part in one.parts}
        for part in parts:
            if not self._is_there(part):
                self.forget(part)

    # ---- the file on disk ----

    def _write(self, new: list[StoredTransaction]) -> None:
        if not new and not self._done:
            return
        done = set(self._done)
        if self._file.is_open and self._file.end < _LONG:
            self._file.add(new, sorted(done))
        else:
            every = [*self._open.values(), *new]
            self._file.replace([left for one in every if (left := _left_of(one, done)).parts])
        self._open |= {one.id: one for one in new}
        for of, part in done:
            self._open[of].parts.discard(part)
        self._open = {of: one for of, one in self._open.items() if one.parts}
        self._happened &= self._open.keys()
        self._done -= done


def _left_of(one: StoredTransaction, done: set[tuple[Id, Part]]) -> StoredTransaction:
    return StoredTransaction(
        one.id, one.work, {part for part in one.parts if (one.id, part) not in done}
    )
