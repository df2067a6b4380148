"""Many tasks through two workers of Celery, while something is killed: which ones were done."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import shmq
from tests.support.celery_worker import CeleryProcess, celery, celery_environment, recorded
from tests.support.processes import ROOT
from tests.support.waiting import PATIENCE, eventually

#: Processes of a worker's pool, and the tasks that a worker holds for each of them.
CONCURRENCY = 2
_MULTIPLIER = 4
#: The most tasks that a worker holds: those of its pool are among them.
WINDOW = CONCURRENCY * _MULTIPLIER

_PUBLISH = """
import sys
from tests.support.celery_tasks import app, record
path, begin, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with app.producer_pool.acquire(block=True) as producer:
    for number in range(begin, end):
        record.apply_async((number, path), producer=producer)
"""


def is_settled(broker: shmq.Broker) -> bool:
    """Whether the queue of Celery has no message that may still be done."""
    stats = broker.queue("celery").stats()
    return not (stats.depth or stats.in_flight or stats.delayed)


@dataclasses.dataclass
class Load:
    """Tasks 0 to ``size`` - 1 of which each records its number in a file."""

    size: int
    path: Path
    variables: dict[str, str]
    workers: list[CeleryProcess] = dataclasses.field(default_factory=list)

    def publish(self) -> None:
        """Publish all tasks, from another process."""
        subprocess.run(
            [sys.executable, "-c", _PUBLISH, str(self.path), "0", str(self.size)],
            cwd=ROOT,
            env=celery_environment(**self.variables),
            check=True,
            timeout=PATIENCE * 2,
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Two workers, for the block."""
        with contextlib.ExitStack() as stack:
            common = ("-c", str(CONCURRENCY), "-l", "info")
            self.workers = [
                stack.enter_context(celery("worker", "-n", f"w{n}@%h", *common, **self.variables))
                for n in range(2)
            ]
            for worker in self.workers:
                worker.hears("ready")
            yield

    def wait_until(self, share: float) -> None:
        """Return once that share of the tasks was recorded."""
        wanted = int(self.size * share)
        eventually(lambda: len(recorded(self.path)) >= wanted, f"{wanted} tasks are done")

    def finish(self, is_settled: Callable[[], bool]) -> Counter[int]:
        """Wait until all tasks are done and settled; the numbers, each with how often."""
        self.wait_until(1.0)
        eventually(is_settled, "all tasks are settled")
        found = recorded(self.path)
        assert sorted(found) == list(range(self.size)), "tasks are missing"
        return found


def load(size: int, folder: Path, url: str, **transport_options: object) -> Load:
    """The tasks, for a broker."""
    options = {"broker_transport_options": transport_options, "worker_prefetch_multiplier": 4}
    variables = {"TEST_BROKER": url, "TEST_CELERY": json.dumps(options)}
    return Load(size, folder / "done", variables)


def doubled(found: Counter[int]) -> list[int]:
    """The numbers of the tasks that were done more than once."""
    return sorted(number for number, count in found.items() if count > 1)
