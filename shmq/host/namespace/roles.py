"""The roles of processes in a namespace, and the settings that come with them.

A role is a byte of the namespace's file, locked by the process that has the role: the kernel
releases it at its death. So a role has one holder at a time, and none that is dead.

1 to 2**60 - 1
    the claims: the process that has claimed a queue, by the queue's id
2**60
    the writer of the durable queues
2**60 + 1
    the process that starts or replaces the writer
2**60 + 2 to 2**60 + 5
    the guardians, the processes that watch for the deaths of others
2**60 + 2**32 on
    the supervisors: the process that reports why another one died, by the PID of that one

The settings are stored in the same file: the data directory from byte 8 on, if there is one, and
at byte 4128 a mark of the newest transaction, for the writer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmq.disk.storage.inventory import is_written, writer_of
from shmq.errors import LockTimeout, ShmqError
from shmq.host.namespace.processes import Processes
from shmq.native import _clock as time

_CLAIMS: Final = (1 << 60) - 1
_WRITER_BYTE: Final = 1 << 60
_STARTER_BYTE: Final = _WRITER_BYTE + 1
_GUARDIAN_BYTES: Final = range(_STARTER_BYTE + 1, _STARTER_BYTE + 5)
_SUPERVISOR_BYTES: Final = _WRITER_BYTE + (1 << 32)
#: How long what a dead process held waits for the report of its supervisor, in seconds: that may
#: be stopped, or get no processor time.
_REPORTED_WITHIN: Final = 0.2
#: For how many seconds after that a PID means the same dead process.
_SAME_DEATH: Final = 60.0
#: How often `starting` tries to lock its byte, in seconds.
_STARTING_INTERVAL: Final = 0.02
#: The data directory in the namespace's file: the length of the path, its CRC-32, the path.
_DATA_DIR: Final = struct.Struct("<II")
_DATA_DIR_AT: Final = 8
#: Random bytes, other ones for each transaction that the writer has to look for.
_ANNOUNCED: Final = 8
_ANNOUNCED_AT: Final = 4128


class AlreadyWritten(ShmqError):
    """Another process writes the namespace's durable queues."""

    def __init__(self, message: str, pid: int, directory: Path | None) -> None:
        super().__init__(message)
        #: The PID of that process; 0 for one of another PID namespace.
        self.pid = pid
        #: The directory it writes to; None: that cannot be read.
        self.directory = directory


class Roles:
    """Which process has which role in a namespace, and where its durable data is.

    Invariants: this process has a role exactly as long as `Processes.locked_bytes` has its byte,
    which it loses with the namespace's file and in a forked child. The data directory is set
    before there is a writer, and stays until the last queue and process are gone.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        #: Until when the reports of other processes are awaited, by the PID of the dead process.
        self._reports_due: dict[int, float] = {}

    # ---- claims ----

    def claim(self, queue_id: int) -> bool:
        """Claim that queue if it is free; return whether this process has the claim.

        At most one process has it at any moment, and keeps it for as long as it lives.
        """
        self._processes.own_number()  # opens the file
        return self._processes.lock_byte(_claim_byte(queue_id))

    def has_claim(self, queue_id: int) -> bool:
        """Whether this process has the claim to that queue."""
        return _claim_byte(queue_id) in self._processes.locked_bytes

    def is_claimed(self, queue_id: int) -> bool:
        """Whether a live process, this one included, has the claim to that queue."""
        return self.has_claim(queue_id) or self.claimer_of(queue_id) is not None

    def claimer_of(self, queue_id: int) -> int | None:
        """The PID of another process that has the claim to that queue; None: none has.

        It is 0 for a process that has none in this PID namespace.
        """
        self._processes.own_number()
        return self._processes.locker_of(_claim_byte(queue_id))

    def unclaim(self, queue_id: int) -> None:
        """Release the claim, if this process has it."""
        self._processes.unlock_byte(_claim_byte(queue_id))

    # ---- the writer of the durable queues ----

    @property
    def is_writer(self) -> bool:
        """Whether this process writes the durable queues."""
        return _WRITER_BYTE in self._processes.locked_bytes

    @property
    def writer_pid(self) -> int | None:
        """The PID of the writer of the durable queues; None if there is none.

        It is 0 for a process of another PID namespace. Does not create the namespace's file.
        """
        with self._processes.existing_file() as there:
            if self.is_writer:
                return os.getpid()
            return self._processes.locker_of(_WRITER_BYTE) if there else None

    def become_writer(self, directory: Path) -> int:
        """Become the writer of the durable queues, until `release_writer` or death.

        Returns the number of the `memory`.

        Other processes see from now on that their files are in ``directory``, which need not
        exist yet. Raises AlreadyWritten, with its PID, if another process writes them, there or
        elsewhere: a journal has one writer.
        """
        with self._processes.locked():
            self.refuse_second_writer(directory)
            self.note_data_dir(directory)
            if not self._processes.lock_byte(_WRITER_BYTE):
                raise BlockingIOError(errno.EAGAIN, "another process took the writer's lock")
            return self._processes.memory

    def refuse_second_writer(self, directory: Path) -> None:
        """Raises AlreadyWritten if another process writes the durable queues, anywhere."""
        self._processes.own_number()  # opens the file, which stays open while this process lives
        with self._processes.locked():
            other = self.data_dir
            pid = self._processes.locker_of(_WRITER_BYTE)
            if pid is None:
                # A record lock does not exclude the same process; the directory's lock does.
                if other is None or is_same_directory(other, directory) or not is_written(other):
                    return
                pid = writer_of(other)
        raise AlreadyWritten(
            f"{f'process {pid}' if pid > 0 else 'another process'} writes the durable queues of "
            f"namespace {self._processes.namespace!r} already, in {other}: end it first; two "
            f"cannot write one journal",
            pid,
            other,
        )

    def release_writer(self) -> None:
        """Let another process become the writer of the durable queues."""
        self._processes.unlock_byte(_WRITER_BYTE)

    @contextlib.contextmanager
    def starting(self, timeout: float) -> Iterator[None]:
        """Be the only process that starts or replaces a writer, for the block.

        Does not exclude other threads of this process. Raises :class:`~shmq.LockTimeout`.
        """
        self._processes.own_number()
        end = time.monotonic() + timeout
        while not self._processes.lock_byte(_STARTER_BYTE):
            if time.monotonic() >= end:
                pid = self._processes.locker_of(_STARTER_BYTE) or 0
                raise LockTimeout(
                    f"process {pid} has been starting the writer of namespace "
                    f"{self._processes.namespace!r} for more than {timeout:g} s: try again, or "
                    f"end it",
                    pid,
                )
            time.sleep(_STARTING_INTERVAL)
        try:
            yield
        finally:
            self._processes.unlock_byte(_STARTER_BYTE)

    # ---- guardians ----

    @property
    def is_guardian(self) -> bool:
        """Whether this process has a place; it loses it with the namespace's file."""
        return not self._processes.locked_bytes.isdisjoint(_GUARDIAN_BYTES)

    def become_guardian(self) -> bytes | None:
        """Take a place among the guardians; the path of the file to watch. None: none is needed.

        That is so if all places are taken, or everything in the namespace was deleted. Each process
        has at most one place, until `retire_guardian` or its death.
        """
        with self._processes.section():
            if not self._processes.is_current() and self._processes.is_empty():
                return None  # registering would make the file again, and no process would remove it
            self._processes.own_number()
            if self.is_guardian or any(map(self._processes.lock_byte, _GUARDIAN_BYTES)):
                return os.fsencode(self._processes.path)
            return None

    def retire_guardian(self) -> None:
        """Give up the place, if this process has one."""
        for byte in _GUARDIAN_BYTES:
            self._processes.unlock_byte(byte)

    # ---- supervisors ----

    def supervise(self, pid: int) -> None:
        """Be the process that reports why process ``pid`` died, until `end_supervision` or death.

        Until then what the dead process held waits for the report: see `awaits_report`.
        """
        self._processes.own_number()  # opens the file
        self._processes.lock_byte(_SUPERVISOR_BYTES + pid)

    def end_supervision(self, pid: int) -> None:
        """Let any process return what process ``pid`` held. Without `supervise` it does nothing."""
        self._processes.unlock_byte(_SUPERVISOR_BYTES + pid)

    def awaits_report(self, pid: int) -> bool:
        """Whether a process still has to report why process ``pid`` died.

        What the dead process held stays as it is until then. Another process than this one has
        0.2 s for its report, from the first call on. Does not wait.
        """
        byte = _SUPERVISOR_BYTES + pid
        if byte in self._processes.locked_bytes:
            return True
        if self._processes.locker_of(byte) is None:
            self._reports_due.pop(pid, None)
            return False
        now, due = time.monotonic(), self._reports_due.get(pid)
        if due is None or now > due + _SAME_DEATH:
            due = self._reports_due[pid] = now + _REPORTED_WITHIN
        return now < due

    # ---- settings ----

    @property
    def data_dir(self) -> Path | None:
        """The directory of its durable queues and tables; None if none was needed yet.

        The writer sets it with `become_writer`, a table with `adopt_data_dir`; it stays until
        the last queue and process are gone.
        """
        most = _DATA_DIR.size + os.pathconf("/", "PC_PATH_MAX")
        with self._processes.existing_file() as there:
            raw = self._processes.read(most, _DATA_DIR_AT) if there else b""
        if len(raw) < _DATA_DIR.size:
            return None
        size, checksum = _DATA_DIR.unpack_from(raw)
        path = raw[_DATA_DIR.size : _DATA_DIR.size + size]
        return Path(os.fsdecode(path)) if path and zlib.crc32(path) == checksum else None

    def note_data_dir(self, directory: Path) -> None:
        """Record the directory in the namespace's file. Needs the registry lock."""
        path = os.fsencode(directory.absolute())
        record = _DATA_DIR.pack(len(path), zlib.crc32(path)) + path
        self._processes.write(record, _DATA_DIR_AT)
        self._processes.made_file = False

    def adopt_data_dir(self, directory: Path) -> Path:
        """The data directory; from now on ``directory``, if none was set.

        So all processes find the tables there that one of them makes. Raises what `locked` raises.
        """
        with self._processes.locked():
            there = self.data_dir
            if there is None:
                self.note_data_dir(directory)
            return there or directory

    def announce_transaction(self) -> None:
        """Tell the writer that a transaction may commit whose file it has not seen. Raises NoSpace.

        Call it when the file has its name for the writer, and before the commit point.
        """
        self._processes.own_number()  # opens the file
        self._processes.write(os.urandom(_ANNOUNCED), _ANNOUNCED_AT)

    @property
    def announced(self) -> bytes | None:
        """Bytes that differ after each `announce_transaction`; None: not known."""
        try:
            return self._processes.read(_ANNOUNCED, _ANNOUNCED_AT)
        except OSError:  # the file is not open
            return None


def _claim_byte(queue_id: int) -> int:
    return 1 + queue_id % _CLAIMS


def is_same_directory(one: Path, other: Path) -> bool:
    """Whether both are one path, or one existing directory."""
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False
