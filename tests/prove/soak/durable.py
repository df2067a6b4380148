"""The soak with a journal: everything is killed, the shared memory is lost, and it goes on.

In each round producers, consumers, the persistence process and the supervisor are killed at
random; then all that is left of them at once, and the namespace's files in /dev/shm are
removed, as by a reboot. The next round's server recovers the queue. What was confirmed to be
on disk comes out once. An acknowledgement counts from the moment on when no queue has
settled messages that its journal does not have; of later ones the lost memory alone knew.
"""

from __future__ import annotations

import contextlib
import functools
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import shmq
from shmq.extras.stress.journal import (
    ACKED,
    INTENT,
    PUT,
    CheckResult,
    Journal,
    Record,
    judge,
    read_all,
)
from shmq.extras.stress.workers import WorkerProcesses
from tests.prove.soak import workers
from tests.prove.soak.drain import check, drain
from tests.prove.soak.stops import insist
from tests.prove.soak.workers import BATCH, body_of, properties
from tests.support.processes import SHM
from tests.support.server import Server
from tests.support.waiting import PATIENCE, eventually

PRODUCERS = 3
CONSUMERS = 2
QUEUE = "work"
CAPACITY = 500
#: The state of a slot whose message was acknowledged and is not settled yet: layout.h.
ACKED_SLOT = 9

#: Of those who are killed within a round, so many are the server's.
SERVERS_KILLED = 0.15


@dataclass(frozen=True)
class Loss:
    """One loss of the memory: acks of the workers up to ``last`` that are later than ``safe``."""

    last: int
    safe: int


class Host:
    """A server with a data directory, which can be killed with all that it has started."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self.namespace = namespace
        self.killed = 0
        self.server = Server(folder, namespace, {"data_dir": str(folder / "data")})

    def start(self) -> None:
        """Start it; it has recovered the files."""
        self.server.start()
        self.server.ready()

    def kill_one(self, chance: random.Random) -> None:
        """Kill the process that writes, or the supervisor; another takes its place."""
        self.killed += 1
        if chance.random() < 0.7:
            for process in self._children():
                if process.pid in self._writers():
                    process.kill()
            return
        children = self._children()
        self.server.process.kill()
        self.server.process.wait()
        _, alive = psutil.wait_procs(children, timeout=PATIENCE)
        assert not alive, f"these outlived their supervisor: {alive}"
        self.start()

    def power_off(self) -> None:
        """Everything of it ends at once, and what it had in memory is lost."""
        doomed = [psutil.Process(self.server.pid), *self._children()]
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.server.process.wait()
        _, alive = psutil.wait_procs(doomed, timeout=PATIENCE)
        assert not alive, f"these outlived a SIGKILL: {alive}"
        for path in SHM.iterdir():
            if f"@{self.namespace}" in path.name:
                path.unlink(missing_ok=True)

    def _children(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.server.pid).children(recursive=True)
        return []

    def _writers(self) -> set[int]:
        return {int(pid) for pid in self.server.said(r"persistence started, pid (\d+)")}


def produce(
    namespace: str,
    directory: Path,
    worker: int,
    excused: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Put messages in every way there is, each confirmed by the disk, until killed.

    Each put is in a block of ``excused()``; nothing is promised of one whose error ends there.
    """
    journal, chance = Journal(directory, worker), random.Random(worker)
    queue: Any = insist(lambda: shmq.connect(namespace).queue(QUEUE))
    number = worker << 32
    while True:
        count = chance.choice((1, 1, BATCH))
        numbers = range(number + 1, number + 1 + count)
        number += count
        journal.write(INTENT, *numbers)
        put = _way(queue, numbers, chance)
        if chance.random() < 0.2:
            put(confirm="memory")  # of which nothing is promised
            continue
        with excused():
            put(confirm="disk")
            journal.write(PUT, *numbers)


def _way(queue: Any, numbers: range, chance: random.Random) -> Callable[..., Any]:
    if len(numbers) == 1:
        body = body_of(numbers[0], chance)
        return functools.partial(queue.put, body, True, **properties(chance))
    bodies = [each.to_bytes(8, "big") for each in numbers]
    if chance.random() < 0.5:
        return functools.partial(queue.put_packed, b"".join(bodies), 8, True)
    return functools.partial(queue.put_many, bodies, True)


def is_written(queue: Any) -> bool:
    """Whether every ack until now is in the journal.

    An ack ends with its slot marked; the next call of its consumer settles it, or, if that was
    killed, whoever notices its death, and only then it waits for the journal.
    """
    queue.qsize()  # notices the dead: the scan does not, and there may be no process that waits
    rows, _ = queue.inspection.scan(0, CAPACITY)
    if any(state == ACKED_SLOT for _, state, *_ in rows):
        return False
    return bool(queue.stats().journal_waiting == 0)


class Storm:
    """Rounds of killing, each but the last with a loss of the memory at its end."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = Path(tempfile.mkdtemp(prefix="shmq-soak-"))
        self.namespace = f"soak-{secrets.token_hex(4)}"
        self.host = Host(self.folder, self.namespace)
        self.crew = WorkerProcesses(self.namespace, self.folder)
        self.losses: list[Loss] = []

    def run(self, seconds: float, rounds: int) -> CheckResult:
        """The verdict over ``rounds`` rounds of about equal length."""
        self.host.start()
        with shmq.connect(self.namespace) as broker:
            broker.create_queue(
                QUEUE,
                capacity=CAPACITY,
                visibility_timeout=3600,
                max_deliveries=60_000,
                durability="journal",
            )
        for number in range(rounds):
            self._round(seconds / rounds, quiet=number % 2 == 1)
            self.host.start()
        return self._end()

    def _round(self, seconds: float, *, quiet: bool) -> None:
        safe = time.monotonic_ns()
        for work in [produce] * PRODUCERS + [workers.consume] * CONSUMERS:
            self.crew.start(work)
        end = time.monotonic() + seconds
        with shmq.connect(self.namespace) as broker, broker.queue(QUEUE) as queue:
            while time.monotonic() < end:
                time.sleep(self.chance.random() / 10)
                safe = self._seen_safe(queue, safe)
                if self.chance.random() < SERVERS_KILLED:
                    self.host.kill_one(self.chance)
                else:
                    self.crew.start(self.crew.kill(self.chance.choice(self.crew.alive)))
            if quiet:
                for worker in self.crew.at(workers.consume):
                    self.crew.kill(worker)
                before = safe
                eventually(lambda: self._seen_safe(queue, before) > before, "the acks are written")
                safe = self._seen_safe(queue, time.monotonic_ns())
        for worker in self.crew.alive:
            self.crew.kill(worker)
        self.host.power_off()
        self.losses.append(Loss(self.crew.started, safe))

    def _seen_safe(self, queue: Any, safe: int) -> int:
        """Now, if every ack until now is in the journal; else what was known before."""
        now = time.monotonic_ns()
        return now if is_written(queue) else safe

    def _end(self) -> CheckResult:
        with shmq.connect(self.namespace) as broker:
            with broker.queue(QUEUE) as queue:
                drain(queue, Journal(self.folder, 0))
                eventually(lambda: queue.stats().journal_waiting == 0, "the last acks are written")
            assert self.host.server.stops() == 0, self.host.server.log
            with broker.queue(QUEUE) as queue:
                check(queue)
        return judge(known(read_all(self.folder), self.losses), self.crew.killed_at)

    def close(self) -> None:
        """Leave nothing behind."""
        self.crew.kill_all()
        self.host.server.close()
        with shmq.connect(self.namespace) as broker:
            for summary in reversed(broker.list_queues()):
                broker.delete_queue(summary.name)
        shutil.rmtree(self.folder)


def known(records: Iterable[Record], losses: list[Loss]) -> Iterator[Record]:
    """The records without the acks that a loss of the memory may have undone."""
    for record in records:
        loss = next((each for each in losses if record.worker <= each.last), None)
        lost = loss is not None and record.worker and record.at > loss.safe
        if not (lost and record.kind == ACKED):
            yield record


def soak(seconds: float, seed: int, rounds: int = 4) -> tuple[CheckResult, int, int]:
    """The verdict, and how many workers and how many of the server's processes were killed."""
    storm = Storm(seed)
    try:
        return storm.run(seconds, rounds), storm.crew.killed, storm.host.killed
    finally:
        storm.close()
