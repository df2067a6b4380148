"""Workers that use a disk which is full now and then, and whose writers are killed while it is.

In a namespace of their own, whose writer starts automatically, they put, append, set and define,
each time confirmed by the disk. While the disk is full they may get the errors that say so; once it
has room again, each of them goes on. At the end the memory is lost.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import shmq
from shmq.extras.stress.journal import ACKED, INTENT, PUT, Journal, judge, read, read_all
from shmq.host.namespace.namespace import Namespace
from tests.prove.soak import durable, workers
from tests.prove.soak.drain import check, drain
from tests.prove.soak.mixed.crew import Hindered, Hindrance
from tests.prove.soak.mixed.rounds import until
from tests.prove.soak.mixed.small_disk import Filler
from tests.prove.soak.stops import insist
from tests.support.namespaces import delete_all
from tests.support.processes import SHM
from tests.support.waiting import eventually

T = TypeVar("T")

STREAM = TABLE = "records"
#: How long the disk has room, and how long it is full, at most, in seconds.
ROOM, FULL = 2.0, 2.0
#: How often the disk is filled up again while it is full, in seconds, and the chances that a
#: writer, and a worker, is killed each time.
PAUSE, WRITERS_KILLED, WORKERS_KILLED = 0.05, 0.06, 0.1
#: The values in the table grow to so many pages of so many bytes, and shrink again.
PAGES, PAGE = 50, 4096
#: What an error says that a full disk, a killed writer or a slow one explains.
REASONS = ("No space left", "there is not enough space", "writer", "timed out")


# ---- workers ----


def put(namespace: str, directory: Path, worker: int) -> None:
    """Put messages until killed; a full disk confirms none."""
    durable.produce(namespace, directory, worker, excused)


def append(namespace: str, directory: Path, worker: int) -> None:
    """Append records until killed."""
    stream = _open(lambda: shmq.connect(namespace).stream(STREAM))
    _repeat(
        directory,
        worker,
        lambda number: stream.append(number.to_bytes(8, "big"), block=True, confirm="disk"),
    )


def tabulate(namespace: str, directory: Path, worker: int) -> None:
    """Set a key of the worker's own to one number after another, until killed."""
    table = _open(lambda: shmq.connect(namespace).table(TABLE))

    def replace(number: int) -> None:
        table.set(f"{worker}", number.to_bytes(8, "big") + bytes(number % PAGES * PAGE))

    _repeat(directory, worker, replace)


def define(namespace: str, directory: Path, worker: int) -> None:
    """Create one exchange after another, and delete the one before, until killed."""
    warnings.simplefilter("error", shmq.DurabilityWarning)  # of what no writer has confirmed
    broker = _open(lambda: shmq.connect(namespace))

    def replace(number: int) -> None:
        broker.create_exchange(f"x{number}", "direct")
        with contextlib.suppress(shmq.NoSuchExchange):
            broker.delete_exchange(f"x{number - 1}")

    _repeat(directory, worker, replace)


@contextlib.contextmanager
def excused() -> Iterator[None]:
    """Suppress the errors of the block that `REASONS` explain."""
    try:
        yield
    except (shmq.NotConfirmed, shmq.NoSpace, shmq.DurabilityWarning) as error:
        assert any(reason in str(error) for reason in REASONS), error


def _open(operation: Callable[[], T]) -> T:
    """Carry the operation out, again while the disk is full."""
    while True:
        with excused():
            return insist(operation)


def _repeat(directory: Path, worker: int, operation: Callable[[int], Any]) -> None:
    """Carry the operation out with one number after another; note the confirmed ones."""
    journal, number = Journal(directory / "others", worker), worker << 32
    while True:
        number += 1
        journal.write(INTENT, number)
        with excused():
            insist(functools.partial(operation, number))
            journal.write(PUT, number)


# ---- the storm ----


def namespace_of(beside: str) -> str:
    """The workers' own namespace beside that one."""
    return f"{beside}-disk"


class Storm:
    """The workers, and the disk that they write to."""

    def __init__(
        self,
        filler: Filler | None,
        beside: str,
        seed: int,
        logs: Path,
        hindrances: Sequence[Hindrance],
    ) -> None:
        self.chance = random.Random(seed)
        self.namespace = namespace_of(beside)
        self.beside = beside
        self.filler = filler
        self.folder = Path(tempfile.mkdtemp(prefix="shmq-soak-"))
        (self.folder / "others").mkdir()
        self.crew = Hindered(logs, hindrances, self.namespace, self.folder)
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Fill the disk and free it again, for so long."""
        end = time.monotonic() + seconds
        with shmq.connect(self.namespace) as broker:
            _create(broker)
            for work in (put, put, append, tabulate, define, workers.consume, workers.consume):
                self.crew.start(work)
            self._go_on()
            for _ in until(end):
                self._kill(self.chance.random() * ROOM)
                if self.filler is not None:
                    self._fill(self.filler, self.chance.random() * FULL)
                self._go_on()
            for worker in self.crew.alive:
                self.crew.kill(worker)
            with insist(lambda: broker.queue(durable.QUEUE)) as queue:
                eventually(
                    lambda: insist(lambda: durable.is_written(queue)), "the last acks are written"
                )
        self._lose_memory()
        with shmq.connect(self.namespace) as broker:
            self._judge(broker)

    def _lose_memory(self) -> None:
        """Leave of the namespace what a reboot does: its files on the disk."""
        registry = Namespace.of(self.namespace)
        while kill_writer(self.namespace):
            eventually(lambda: not registry.roles.writer_pid, "the killed writer ends")
        registry.retire()
        for path in SHM.iterdir():
            if f"@{self.namespace}" in path.name:
                path.unlink(missing_ok=True)

    def _kill(self, seconds: float) -> None:
        """Kill workers for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.chance.random() / 2)
            self._kill_worker()

    def _kill_worker(self) -> None:
        self.crew.start(self.crew.kill(self.chance.choice(self.crew.alive)))

    def _fill(self, filler: Filler, seconds: float) -> None:
        """Leave no room on the disk for so long; writers are killed meanwhile."""
        end = time.monotonic() + seconds
        self.counts["full disks"] += 1
        with filler.filling():
            while time.monotonic() < end:
                filler.fill()
                for namespace in (self.namespace, self.beside):
                    if self.chance.random() < WRITERS_KILLED:
                        self.counts["writers killed"] += kill_writer(namespace)
                if self.chance.random() < WORKERS_KILLED:
                    self._kill_worker()
                time.sleep(PAUSE)

    def _go_on(self) -> None:
        """Return once every worker has done something more."""
        since = time.monotonic_ns()
        for worker in self.crew.alive:
            eventually(
                functools.partial(self._has_done, worker, since),
                f"worker {worker} goes on, process {self.crew.pid(worker)}",
                pause=0.05,
            )

    def _has_done(self, worker: int, since: int) -> bool:
        self.crew.check()
        for folder in (self.folder, self.folder / "others"):
            path = folder / f"{worker}.journal"
            if path.exists():
                return any(each.at > since and each.kind in {PUT, ACKED} for each in read(path))
        return False

    def _judge(self, broker: shmq.Broker) -> None:
        with insist(lambda: broker.queue(durable.QUEUE)) as queue:
            drain(queue, Journal(self.folder, 0))
            eventually(lambda: not insist(queue.stats).journal_waiting, "the last acks are written")
            check(queue)
        verdict = judge(read_all(self.folder), self.crew.killed_at)
        assert not verdict.wrong(), verdict.wrong()
        self.counts["messages"] = verdict.put
        self._judge_others(broker)

    def _judge_others(self, broker: shmq.Broker) -> None:
        """All that the disk has confirmed is there."""
        values = Counter(
            int.from_bytes(record.value, "big")
            for record in insist(lambda: list(broker.stream(STREAM).reader("earliest", timeout=0)))
        )
        table = insist(lambda: broker.table(TABLE))
        exchanges = {each.name for each in insist(broker.list_exchanges)}
        for path in (self.folder / "others").iterdir():
            notes = list(read(path))
            done = [note.message for note in notes if note.kind == PUT]
            if not done:
                continue
            last = [note.message for note in notes][-1]
            worker = last >> 32
            if done[-1] in values:
                assert all(values[each] == 1 for each in done), "confirmed once, and there once"
                self.counts["records"] += len(done)
            elif (value := table.get(f"{worker}")) is not None:
                assert done[-1] <= int.from_bytes(value[:8], "big") <= last
                self.counts["values"] += len(done)
            else:
                assert exchanges & {f"x{each}" for each in range(done[-1], last + 1)}
                self.counts["exchanges"] += len(done)

    def close(self) -> None:
        """Leave nothing behind."""
        self.crew.kill_all()
        with shmq.connect(self.namespace) as broker:
            insist(functools.partial(delete_all, broker))
        shutil.rmtree(self.folder)


def kill_writer(namespace: str) -> bool:
    """Kill the process that writes the namespace's files; whether there was one."""
    pid = Namespace.of(namespace).roles.writer_pid
    if not pid:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


def _create(broker: shmq.Broker) -> None:
    broker.create_queue(
        durable.QUEUE,
        capacity=durable.CAPACITY,
        visibility_timeout=3600,
        max_deliveries=60_000,
        durability="journal",
    )
    broker.create_stream(STREAM, partitions=1, durability="journal", segment_bytes=1 << 20)
    broker.ensure_table(TABLE, durability="disk")


def soak(
    seconds: float,
    seed: int,
    namespace: str,
    filler: Filler | None,
    logs: Path,
    hindrances: Sequence[Hindrance],
) -> str:
    """What was confirmed. Raises AssertionError where something was lost, or does not go on.

    While the ``filler`` fills the disk, the writer of ``namespace`` is killed as well.
    """
    storm = Storm(filler, namespace, seed, logs, hindrances)
    try:
        storm.run(seconds)
        return ", ".join(f"{count} {what}" for what, count in storm.counts.items())
    finally:
        storm.close()
