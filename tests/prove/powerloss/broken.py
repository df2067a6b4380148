"""Writers that are broken on purpose, each in a way that a proof must find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from shmq.disk.persistence.journal_writer import JournalWriter
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.snapshot import Snapshot
from shmq.disk.persistence.transactions import NO_TRANSACTIONS, Notes
from shmq.disk.persistence.transfers import Transfers
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.transaction_file import Id, Part
from tests.support.stepwise_disk import StepwiseDisk


class _Through(StepwiseDisk):
    """A disk that passes everything on to another; what is derived leaves something out."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.directory)
        self.real = disk

    def make(self) -> None:
        self.real.make()

    def create(self, name: str) -> int:
        return self.real.create(name)

    def open(self, name: str) -> int:
        return self.real.open(name)

    def close(self, file: int) -> None:
        self.real.close(file)

    def write(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        return self.real.write(file, pieces, offset)

    def truncate(self, file: int, length: int) -> None:
        self.real.truncate(file, length)

    def sync(self, file: int) -> None:
        self.real.sync(file)

    def rename(self, old: str, new: str) -> None:
        self.real.rename(old, new)

    def unlink(self, name: str) -> None:
        self.real.unlink(name)

    def sync_directory(self) -> None:
        self.real.sync_directory()


class _NeverSyncs(_Through):
    def sync(self, file: int) -> None:
        pass


class _NeverSyncsNames(_Through):
    def sync_directory(self) -> None:
        pass


class _TriesTheSyncAgain(_Through):
    def sync(self, file: int) -> None:
        try:
            self.real.sync(file)
        except OSError:
            self.real.sync(file)


class _SyncsSnapshotsLate(_Through):
    """The rename of a snapshot comes first, and then the sync of what it holds."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self._late: dict[str, int] = {}

    def create(self, name: str) -> int:
        file = self.real.create(name)
        if name.startswith("."):
            self._late[name] = file
        return file

    def sync(self, file: int) -> None:
        if file not in self._late.values():
            self.real.sync(file)

    def close(self, file: int) -> None:
        if file not in self._late.values():
            self.real.close(file)

    def rename(self, old: str, new: str) -> None:
        self.real.rename(old, new)
        file = self._late.pop(old)
        self.real.sync(file)
        self.real.close(file)


def never_syncs(
    disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
) -> JournalWriter:
    """It leaves fdatasync out."""
    return _Eager(_NeverSyncs(disk), handle, sizes, moves, notes)


def never_syncs_names(
    disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
) -> JournalWriter:
    """It never syncs the directory."""
    return _Eager(_NeverSyncsNames(disk), handle, sizes, moves, notes)


def tries_the_sync_again(
    disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
) -> JournalWriter:
    """After a failed fdatasync it calls it again, and takes its success for granted."""
    return _Eager(_TriesTheSyncAgain(disk), handle, sizes, moves, notes)


def renames_before_the_sync(
    disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
) -> JournalWriter:
    """A snapshot has its name before its content is on disk."""
    return _Eager(_SyncsSnapshotsLate(disk), handle, sizes, moves, notes)


class _Eager(JournalWriter):
    """It looks at each step what has arrived elsewhere."""

    def __init__(
        self, disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
    ) -> None:
        super().__init__(disk, handle, sizes, moves, look=0.0, transactions=notes)


class ConfirmsFirst(_Eager):
    """It publishes a commit, and then writes and syncs it."""

    def _write(self, collected: Any, salt: int) -> None:
        if self._sealed_with != salt:
            self.follower.seal(salt)
        self.follower.publish(self.journal.segment, self.journal.offset)
        if len(collected.data):
            self.journal.append(collected)
        collected.data.release()
        self._unwritten, self._more = None, collected.more


class UnlinksFirst(_Eager):
    """It removes what a snapshot covers, and then syncs the snapshot's name."""

    def _replace(self, snapshot: Snapshot) -> None:
        self.journal.drop_before(snapshot.number)
        super()._replace(snapshot)


class SettlesMovesFirst(_Eager):
    """It settles a moved message without asking whether its copy is on disk."""

    def _release_arrived(self) -> bool:
        slots = [slot for slot, *_ in self.follower.moved()]
        self.follower.arrived(slots)
        return bool(slots)


def notes_no_transaction(
    disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
) -> JournalWriter:
    """It writes what transactions did as if each queue were by itself."""
    del notes
    return _Eager(disk, handle, sizes, moves, NO_TRANSACTIONS)


class _NotesLate:
    """It notes a transaction behind the first thing that was written of it."""

    def __init__(self, notes: Notes) -> None:
        self._real = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def note(self) -> None:
        """Later."""


class NotesTransactionsLate(_Eager):
    """It writes a commit, and notes the transactions that it has something of then."""

    def __init__(
        self, disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
    ) -> None:
        super().__init__(disk, handle, sizes, moves, cast(Notes, _NotesLate(notes)))
        self._late = notes

    def _write(self, collected: Any, salt: int) -> None:
        super()._write(collected, salt)
        self._late.note()


class _MarksAtOnce(_NotesLate):
    """It takes a transaction's part for done when it has happened in memory."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(notes)

    def note(self) -> None:
        """See :class:`Notes`."""
        self._real.note()

    def happened(self, part: Part) -> frozenset[Id]:
        """See :class:`Notes`."""
        found = self._real.happened(part)
        self._real.done(part, found)
        self._real.mark()
        return found


def marks_before_it_writes(
    disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
) -> JournalWriter:
    """It marks what a transaction did as done before that is on disk."""
    return _Eager(disk, handle, sizes, moves, cast(Notes, _MarksAtOnce(notes)))
