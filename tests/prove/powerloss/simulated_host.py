"""The real writer of a namespace, carried out step by step in one thread, on a recorded disk."""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from unittest import mock

import shmq
from shmq.client.local.queue import attach
from shmq.client.transaction.transaction_log import noted
from shmq.disk.persistence.journal_writer import JournalWriter
from shmq.disk.persistence.recovery import recover
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.transactions import Notes, Transactions
from shmq.disk.persistence.transfers import Transfers
from shmq.disk.storage.disk import Disk
from shmq.host.namespace import namespace as registry
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace
from tests.prove.powerloss.application import Application
from tests.prove.powerloss.recorded_disk import Fault, Recording, RecordingDisk
from tests.prove.powerloss.trace import Trace

#: Below the root of a recording.
DATA: Final = "data"

#: Small enough that a few messages fill a segment.
SIZES: Final = WriteSizes(segment=4096, ahead=2048, commit=64 << 10, chunk=1024)

#: More steps than any work needs.
MANY: Final = 1000


class Died(BaseException):
    """The process that writes was killed."""


def _mortal(operation: Callable[..., None]) -> Callable[..., None]:
    """What is done may be the writer's end; once it is dead, it does nothing."""

    @functools.wraps(operation)
    def done(host: SimulatedHost, *arguments: str) -> None:
        if not host.dead:
            try:
                operation(host, *arguments)
            except Died:
                host.dead = True

    return done


class Task(Protocol):
    """What is to be recorded."""

    @property
    def work(self) -> Callable[[SimulatedHost], None]:
        """What is done."""

    @property
    def fault(self) -> Callable[[], Fault] | None:
        """Makes what goes wrong meanwhile."""


#: Makes what writes one queue's journal: the real one, or one that was broken on purpose.
Make = Callable[[Disk, Any, WriteSizes, Transfers, Notes], JournalWriter]


def real(
    disk: Disk, handle: Any, sizes: WriteSizes, moves: Transfers, notes: Notes
) -> JournalWriter:
    """The writer of one queue as it is; it looks at each step what has arrived elsewhere."""
    return JournalWriter(disk, handle, sizes, moves, look=0.0, transactions=notes)


class SimulatedHost:
    """An application, and the writer of its queues' journals, which can be killed.

    ``make`` is the writer of one queue: the real one, or one that is broken.
    """

    def __init__(
        self, root: Path, broker: Any, seed: int = 0, make: Make = real, sizes: WriteSizes = SIZES
    ) -> None:
        self.app = Application(broker, seed)
        self.recording = Recording(root, self.app.know)
        self.app.noted = self.recording.note
        self.broker = broker
        self._make = make
        self._sizes = sizes
        self._writes: dict[str, JournalWriter] = {}
        self.dead = False
        #: Whether a call to the disk fails some time.
        self.faulty = False
        self._start()

    @property
    def trace(self) -> Trace:
        self.recording.note()
        self.recording.trace.sent = self.app.sent
        return self.recording.trace

    # --- the writer's work ----------------------------------------------------------------

    @_mortal
    def step(self, *names: str) -> None:
        """Write until nothing is left to write of these queues, or of all."""
        for _ in range(MANY):
            self._follow()
            wanted = names or tuple(self._writes)
            steps = [self._writes[name].step() for name in wanted if name in self._writes]
            if not any(steps):
                return
        raise AssertionError(f"after {MANY} steps there was still something to write")

    @_mortal
    def mark(self) -> None:
        """Note which transactions are done."""
        with contextlib.suppress(OSError):
            self._transactions.mark()

    @_mortal
    def snapshot(self, name: str) -> None:
        """Write a snapshot, and remove what it makes superfluous."""
        self._follow()
        if name in self._writes:
            with contextlib.suppress(OSError):
                self._writes[name].snapshot()

    @_mortal
    def compact(self, name: str) -> None:
        """Do so if that is due."""
        self._follow()
        if name in self._writes and self._writes[name].due:
            self.snapshot(name)

    @_mortal
    def roll(self, name: str) -> None:
        """Begin another segment."""
        self._follow()
        if name in self._writes:
            self._writes[name].journal.roll()

    def all_is_written(self) -> None:
        """Note that every journal is complete. To be called when that is so."""
        if not self.dead:
            self.app.all_is_written()

    def redrive(self, dead_letter_queue: str) -> None:
        """Send dead letters back."""
        self.app.redrive(dead_letter_queue)

    # --- its life -------------------------------------------------------------------------

    def die_at(self, number: int) -> None:
        """Have it be killed at its ``number``-th call to the disk from now on."""
        calls = 0

        def fault(_: int, method: str) -> int | None:
            nonlocal calls
            calls += 1
            if calls >= number:
                raise Died
            return None

        self.recording.fault = fault

    def restart(self) -> None:
        """Kill it if it lives, and start another."""
        self.recording.fault = None
        self._end()
        self._start()

    def lose_memory(self) -> None:
        """All processes are killed and the shared memory is lost; what is in the files comes back.

        The machine goes on: what the dead writer had not synced is read all the same.
        """
        self.recording.fault = None
        self._end()
        self.app.lose_memory()
        for path in noted(Namespace.of(self.broker.namespace)).values():
            path.unlink()
        self._start()
        recover(self._directory)
        self.app.come_back()

    def close(self) -> None:
        self.recording.fault = None
        self._end()

    def _start(self) -> None:
        self.disk: RecordingDisk = self.recording.open(DATA)
        self._directory = DataDirectory(self.broker.namespace, self.disk)
        self._moves = Transfers(Namespace.of(self.broker.namespace))
        self._transactions = Transactions(Namespace.of(self.broker.namespace), self.disk)
        self.dead = False
        self._directory.ready()

    def _end(self) -> None:
        for queue in self._writes.values():
            queue.handle.close()
        self._writes.clear()
        self.disk.close_all()
        self._directory.close()

    def _follow(self) -> None:
        """Follow new queues, and close those that were deleted."""
        for name, queue in list(self._writes.items()):
            if queue.deleted:
                del self._writes[name]
                with contextlib.suppress(OSError):
                    queue.close()
        for name in sorted(self.app.queues.keys() - self._writes.keys()):
            handle = attach(Namespace.of(self.broker.namespace), name)
            try:
                self._writes[name] = self._make(
                    self.disk, handle, self._sizes, self._moves, self._transactions
                )
            except OSError:  # it is tried again the next time
                handle.close()
            except BaseException:
                handle.close()
                raise


@contextlib.contextmanager
def simulated_host(root: Path, seed: int = 0, make: Make = real) -> Iterator[SimulatedHost]:
    """A host in a namespace of its own, of which nothing is left at the end.

    The recording also sees files that are removed with a queue.
    """
    namespace = f"test-{secrets.token_hex(6)}"
    with shmq.connect(namespace) as broker:
        made = SimulatedHost(root, broker, seed, make)
        with mock.patch.object(registry, "Disk", lambda path: made.recording.open(path.name)):
            try:
                yield made
            finally:
                made.close()
                made.recording.silent = True
                for summary in reversed(broker.list_queues()):
                    broker.delete_queue(summary.name)


def record(task: Task, root: Path, seed: int, make: Make = real) -> Trace:
    """What the task does to the disk."""
    with simulated_host(root, seed, make) as made:
        if task.fault is not None:
            made.recording.fault = task.fault()
            made.faulty = True
        task.work(made)
        return made.trace
