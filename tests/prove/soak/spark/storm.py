"""Exactly once, hunted: numbers through two queues and two jobs into files, all being killed.

    producer ─► queue "in" ─► transform ─► queue "out" ─► archive ─► Parquet

The transform reads and writes over TCP, the archive on the host. Killed are of each job the
command (Spark's driver), Java and a Python worker, and of the server a front end, the persistence
writer and all of it: in an order of chance, each as often as the others. Each number has to be in
the files, once.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import multiprocessing
import random
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import psutil
import pyarrow.dataset as ds

import shmq
from tests.prove.soak.spark.pipeline import KINDS, Pipeline
from tests.prove.spark.jobs.tools import current
from tests.support.processes import SHM
from tests.support.server import Server, fixed_port
from tests.support.waiting import PATIENCE, eventually

#: Bodies are that long: the number, and a filling that follows from it.
BODY: Final = 100
#: How many are put at a time, and how long after one another, in seconds.
BATCH: Final = 50
PAUSE: Final = 0.1
#: What is killed: of whom, and which of its processes.
FRONT_END, WRITER, ALL = "a front end", "the persistence writer", "all of it"
TARGETS: Final = (
    *itertools.product(("transform", "archive"), KINDS),
    *itertools.product(("server",), (FRONT_END, WRITER, ALL)),
)
#: How long the producer goes on at most, in seconds.
LONGEST: Final = 4 * 3600

TRANSFORM: Final = """
checkpoint = "transform.checkpoint"
trigger = "0.2s"
[source.options]
url = "{url}"
subscribe = "in"
maxOffsetsPerTrigger = 5000
[transform]
function = "tests.prove.soak.spark.app:copied"
[sink.options]
url = "{url}"
topic = "out"
[spark]
master = "local[2]"
[spark.conf]
"spark.driver.memory" = "700m"
"""

ARCHIVE: Final = """
checkpoint = "archive.checkpoint"
trigger = "0.2s"
[source.options]
subscribe = "out"
maxOffsetsPerTrigger = 5000
[sink]
path = "archive"
[spark]
master = "local[2]"
[spark.conf]
"spark.driver.memory" = "700m"
"""


@dataclasses.dataclass(slots=True)
class Outcome:
    """What was put, what was killed, and what is wrong."""

    put: int = 0
    killed: list[str] = dataclasses.field(default_factory=list)
    starts: int = 0
    lost: list[int] = dataclasses.field(default_factory=list)
    doubled: dict[int, int] = dataclasses.field(default_factory=dict)
    unexpected: int = 0

    def wrong(self) -> bool:
        """Whether anything is."""
        return bool(self.lost or self.doubled or self.unexpected)


def body_of(number: int) -> bytes:
    """The body that has that number."""
    return (number.to_bytes(8, "big") * (BODY // 8 + 1))[:BODY]


def produce(namespace: str, path: str, end: float) -> None:
    """Put numbers from 0 on until SIGTERM; how many is in the file at ``path`` then."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    number = 0
    with shmq.connect(namespace) as broker, broker.queue("in") as queue:
        while not stopped and time.monotonic() < end:
            number += queue.put_many(
                [body_of(each) for each in range(number, number + BATCH)], block=False
            )
            time.sleep(PAUSE)
    Path(path).write_text(str(number))


class _Stage:
    """The queues, the server and the two jobs."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.namespace = f"soak-{secrets.token_hex(4)}"
        self.chance = random.Random(seed)
        self.server = Server(
            folder, self.namespace, {"workers": 2, "data_dir": str(folder / "data")}
        )
        self.jobs: list[Pipeline] = []
        self._due: list[tuple[str, str]] = []
        self._batches: set[str] = set()

    def __enter__(self) -> Self:
        with shmq.connect(self.namespace) as broker:
            for name in ("in", "out"):
                broker.create_queue(
                    name,
                    capacity=1 << 17,
                    arena_bytes=64 << 20,
                    max_deliveries=None,
                    dead_letter=None,
                    durability="journal",
                ).close()
        self._serve(fixed_port())
        for job, text in (("transform", TRANSFORM), ("archive", ARCHIVE)):
            config = self.folder / f"{job}.toml"
            config.write_text(text.format(url=self.server.url))
            self.jobs.append(Pipeline(self.namespace, job, config))
        return self

    def __exit__(self, *error: object) -> None:
        for job in self.jobs:
            job.close()
        if self.server.process.is_running():
            self.server.process.terminate()
            self.server.process.wait(PATIENCE)
        for path in SHM.iterdir():
            if f"@{self.namespace}" in path.name:
                path.unlink(missing_ok=True)

    def kill_one(self) -> str | None:
        """Kill what is due, or nobody if that is not there just now: then it is due later."""
        if not self._due:
            self._due = self.chance.sample(TARGETS, len(TARGETS))
        whose, kind = self._due.pop()
        if whose == "server":
            killed = self._kill_of_server(kind)
        else:
            (job,) = (job for job in self.jobs if job.job == whose)
            killed = job.kill(kind, self.chance)
        if not killed:
            self._due.insert(0, (whose, kind))
            return None
        return f"{whose}: {kind}"

    def _kill_of_server(self, kind: str) -> bool:
        pids = self.server.workers()
        if kind == WRITER:
            pids = [int(pid) for pid in self.server.said(r"persistence started, pid (\d+)")][-1:]
        if kind == ALL:
            port = self.server.port
            kill_all([self.server.process, *self.server.process.children(recursive=True)])
            self._serve(port)
            return True
        return kill_all([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)][:1])

    def _serve(self, port: int) -> None:
        self.server.configure(port=port, workers=2, data_dir=str(self.folder / "data"))
        self.server.start()
        self.server.ready()

    def waiting(self, queue: str, *, leased: bool) -> int:
        """How many messages are in a queue that nobody has leased, or in all."""
        with shmq.connect(self.namespace) as broker, broker.queue(queue) as there:
            stats = there.stats()
            return stats.depth + (stats.in_flight if leased else 0)

    def flow(self) -> None:
        """Wait until a batch has come through both jobs since this was last waited for."""
        archive = self.folder / "archive"

        def further() -> bool:
            for job in self.jobs:
                job.keep()
            batches = {path.name for path in archive.glob("v=*/shmq_batch=[!e]*")}
            if batches <= self._batches:
                return False
            self._batches |= batches
            return True

        _until(further, "a batch is archived", self.jobs[-1])

    def drain(self) -> None:
        """Let the jobs come to an end, one after the other, and stop."""
        for job, queue in zip(self.jobs, ("in", "out"), strict=True):

            def empty(job: Pipeline = job, queue: str = queue) -> bool:
                for each in self.jobs:
                    if each is job or each.job == "archive":
                        each.keep()
                return not self.waiting(queue, leased=False)

            # A job that is told to stop before it has begun leaves the batch that a crash has
            # cut off to its next start.
            for _ in range(4):
                _until(empty, f"{queue} is empty", job)
                job.stop()
                if not self.waiting(queue, leased=True):
                    break
            assert not self.waiting(queue, leased=True), f"{queue}: not all is acknowledged"


def kill_all(processes: list[psutil.Process]) -> bool:
    """Kill them, and wait for their ends; whether any was there."""
    killed = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            killed.append(process)
    psutil.wait_procs(killed, timeout=PATIENCE)
    return bool(killed)


def _until(condition: Any, what: str, job: Pipeline) -> None:
    try:
        for _ in range(4):  # a job takes long to start on a busy machine
            with contextlib.suppress(AssertionError):
                eventually(condition, what)
                return
        eventually(condition, what)
    except AssertionError as error:
        raise AssertionError(f"{error}: {job.errors.read_text()[-3000:]}") from error


def storm(folder: Path, seed: int, kills: int, pause: float) -> Iterator[str | Outcome]:
    """Kill so many processes; tells of each.

    Each kill comes up to ``pause`` seconds after a batch came through both jobs. The last that
    is told is the outcome, for which `judge` has to be asked what is in the files.
    """
    outcome = Outcome()
    with _Stage(folder, seed) as stage:
        count = folder / "count"
        producer = multiprocessing.get_context("spawn").Process(
            target=produce, args=(stage.namespace, str(count), time.monotonic() + LONGEST)
        )
        producer.start()
        try:
            while len(outcome.killed) < kills:
                stage.flow()
                time.sleep(stage.chance.uniform(0.2, 1) * pause)
                killed = stage.kill_one()
                if killed:
                    outcome.killed.append(killed)
                    yield killed
            producer.terminate()
            producer.join(PATIENCE)
            outcome.put = int(count.read_text())
            stage.drain()
            outcome.starts = sum(job.starts for job in stage.jobs)
        finally:
            producer.kill()
            producer.join()
    yield outcome


def judge(outcome: Outcome, values: list[bytes]) -> Outcome:
    """Compare what was put with the ``values`` in the files."""
    found = collections.Counter(values)
    outcome.lost = [n for n in range(outcome.put) if body_of(n) not in found]
    outcome.doubled = {
        int.from_bytes(value[:8], "big"): count for value, count in found.items() if count > 1
    }
    known = {body_of(n) for n in range(outcome.put)}
    outcome.unexpected = sum(value not in known for value in found)
    return outcome


def archived(folder: Path) -> list[bytes]:
    """The bodies in the archive, through a reader that knows nothing of Spark."""
    table = ds.dataset(current(folder / "archive"), partitioning="hive")
    values: list[bytes] = table.to_table(columns=["value"]).column("value").to_pylist()
    return values
