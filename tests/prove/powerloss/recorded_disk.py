"""A disk that writes down what is done to it, and fails where it is told to."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

from shmq.disk.storage import disk as disk_module
from tests.prove.powerloss.events import (
    Create,
    Event,
    File,
    MakeDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
)
from tests.prove.powerloss.expectation import Expectation
from tests.prove.powerloss.trace import Step, Trace
from tests.support.stepwise_disk import StepwiseDisk

#: Given the number of a call to the disk and its method's name: the error to raise, a
#: negative number for a write that is to be short, or None.
Fault = Callable[[int, str], int | None]

#: What a fault returns for a write that writes a part, and says so.
SHORT = -1


class Recording:
    """The log of one directory and of all that open it: a writer, its successor, a recovery.

    ``know`` is asked before and after each step what the application knows.
    """

    def __init__(self, root: Path, know: Callable[[], Expectation]) -> None:
        self.root = root
        self.trace = Trace()
        self.fault: Fault | None = None
        #: The files whose names begin so cannot be written at present.
        self.refused = "\0"
        self.calls = 0
        #: Nothing is written down any more.
        self.silent = False
        self._know = know
        self._numbers: dict[str, File] = {}
        self._last = 0
        self._lock = threading.RLock()
        for path in sorted(root.rglob("*")):
            raise ValueError(f"{path} was there before its recording began")

    def open(self, name: str) -> RecordingDisk:
        """The directory ``name`` below the root as a disk."""
        return RecordingDisk(self, self.root / name)

    def note(self, event: Event | None = None) -> None:
        """The event has happened; without one, the application may have learnt something."""
        if self.silent:
            return
        expectation = self._know()
        steps = self.trace.steps
        if event is None and steps and steps[-1].expectation == expectation:
            return
        steps.append(Step(event, expectation))

    def call(self, method: str, name: str = "") -> int | None:
        """One call to the disk begins: what is to go wrong with it."""
        self.note()
        self.calls += 1
        if name.startswith(self.refused):
            return errno.EIO
        return self.fault(self.calls, method) if self.fault is not None else None

    def number(self, path: str) -> File:
        return self._numbers[path]

    def named(self, path: str) -> File:
        """A new file has that name."""
        self._last += 1
        self._numbers[path] = self._last
        return self._last

    def renamed(self, path: str, to: str) -> None:
        self._numbers[to] = self._numbers.pop(path)

    @property
    def lock(self) -> threading.RLock:
        return self._lock


class RecordingDisk(StepwiseDisk):
    """The real one, upon a directory of the test's, with every call written down."""

    def __init__(self, recording: Recording, directory: Path) -> None:
        super().__init__(directory)
        self._recording = recording
        self._files: dict[int, File] = {}
        self._names: dict[int, str] = {}

    def make(self) -> None:
        """As the real one, of which the synced directories are seen."""
        with self._recording.lock:
            self._failing("make")
            missing = [at for at in (self.directory, *self.directory.parents) if not at.exists()]
            real = disk_module._sync_directory

            def sync(path: Path) -> None:
                while missing and missing[-1].exists():
                    self._note(MakeDirectory(self._path(missing.pop())))
                real(path)
                if path.is_relative_to(self._recording.root):
                    self._note(SyncDirectory(self._path(path)))

            with mock.patch.object(disk_module, "_sync_directory", sync):
                super().make()

    def under(self, name: str) -> RecordingDisk:
        """A directory below, of the same recording."""
        below = RecordingDisk(self._recording, self.directory / name)
        below._files, below._names = self._files, self._names
        return below

    def remove(self) -> None:
        with self._recording.lock:
            self._failing("remove")
            super().remove()
            self._note(Unlink(self._path(self.directory)))

    def create(self, name: str) -> int:
        with self._recording.lock:
            self._failing("create", name)
            file = super().create(name)
            self._names[file] = name
            self._files[file] = self._recording.named(self._path(self.path(name)))
            self._note(Create(self._path(self.path(name)), self._files[file]))
            return file

    def open(self, name: str) -> int:
        with self._recording.lock:
            self._failing("open")
            file = super().open(name)
            self._names[file] = name
            self._files[file] = self._recording.number(self._path(self.path(name)))
            return file

    def write(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        with self._recording.lock:
            fault = self._recording.call("write", self._names[file])
            whole = b"".join(bytes(piece) for piece in pieces)
            part = whole if fault is None else whole[: max(len(whole) // 2, 1)]
            done = super().write(file, [part], offset)
            self._note(Write(self._files[file], offset, part[:done]))
            if fault is not None and fault != SHORT:
                raise _error(fault)
            return done

    def truncate(self, file: int, length: int) -> None:
        with self._recording.lock:
            self._failing("truncate")
            super().truncate(file, length)
            self._note(Truncate(self._files[file], length))

    def push(self, file: int, offset: int, length: int) -> None:
        """It promises nothing."""

    def close(self, file: int) -> None:
        super().close(file)
        del self._files[file]

    def close_all(self) -> None:
        """What the end of its process does."""
        for file in list(self._files):
            self.close(file)

    def sync(self, file: int) -> None:
        with self._recording.lock:
            fault = self._recording.call("sync", self._names[file])
            super().sync(file)
            self._note(Sync(self._files[file], failed=fault is not None))
            if fault is not None:
                raise _error(fault)

    def rename(self, old: str, new: str) -> None:
        with self._recording.lock:
            self._failing("rename")
            super().rename(old, new)
            paths = self._path(self.path(old)), self._path(self.path(new))
            self._recording.renamed(*paths)
            self._note(Rename(*paths))

    def unlink(self, name: str) -> None:
        with self._recording.lock:
            self._failing("unlink")
            super().unlink(name)
            self._note(Unlink(self._path(self.path(name))))

    def sync_directory(self) -> None:
        with self._recording.lock:
            fault = self._recording.call("sync_directory")
            super().sync_directory()
            self._note(SyncDirectory(self._path(self.directory), failed=fault is not None))
            if fault is not None:
                raise _error(fault)

    def _failing(self, method: str, name: str = "") -> None:
        fault = self._recording.call(method, name)
        if fault is not None and fault != SHORT:
            raise _error(fault)

    def _note(self, event: Event) -> None:
        self._recording.note(event)

    def _path(self, path: Path) -> str:
        relative = str(path.relative_to(self._recording.root))
        return "" if relative == "." else relative


def _error(number: int) -> OSError:
    return OSError(number, f"{os.strerror(number)} (on purpose)")


def failing(number: int, methods: frozenset[str], error: int = errno.EIO) -> Fault:
    """The ``number``-th call of one of those methods fails, once."""
    seen = 0

    def fault(_: int, method: str) -> int | None:
        nonlocal seen
        seen += method in methods
        return error if method in methods and seen == number else None

    return fault
