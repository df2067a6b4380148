"""Workers of task frameworks, started by the frameworks' own commands, and killed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import shmq
from tests.support.ended_processes import kill_groups
from tests.support.processes import ROOT, environment
from tests.support.task_apps.ledger import LEDGER, OPTIONS, TARGET, Ledger
from tests.support.waiting import PATIENCE, eventually

APPS = "tests.support.task_apps"

Process = subprocess.Popen[bytes]

#: The name of the queue that the applications use.
QUEUE = "default"


@dataclasses.dataclass(frozen=True)
class Framework:
    """A framework: its application, and the arguments of Python that run a worker of it."""

    name: str
    app: str
    worker: tuple[str, ...]
    #: Whether the main process of a worker starts another child for one that died.
    replaces: bool


DRAMATIQ = Framework(
    "dramatiq",
    f"{APPS}.dramatiq_app",
    ("-m", "dramatiq", f"{APPS}.dramatiq_app", "--processes", "2", "--threads", "4"),
    replaces=False,
)
TASKIQ = Framework(
    "taskiq",
    f"{APPS}.taskiq_app",
    (
        *("-m", "taskiq", "worker", f"{APPS}.taskiq_app:broker", "--workers", "2"),
        *("--max-async-tasks", "8", "--log-level", "WARNING"),
    ),
    replaces=True,
)
HUEY = Framework(
    "huey",
    f"{APPS}.huey_app",
    (
        *("-m", "huey.bin.huey_consumer", f"{APPS}.huey_app.huey", "--quiet"),
        *("--workers", "4", "--worker-type", "process", "--health-check-interval", "1"),
    ),
    replaces=True,
)
FRAMEWORKS = (DRAMATIQ, TASKIQ, HUEY)


class Workers:
    """The workers of one application, and the processes that send it tasks."""

    def __init__(
        self, framework: Framework, target: str, folder: Path, options: dict[str, Any]
    ) -> None:
        self.framework = framework
        self.target = target
        self.ledger = Ledger(folder / "ledger")
        self.folder = folder
        self._options = options
        self._processes: list[Process] = []

    def start(self) -> Process:
        """Start a worker: its main process, the leader of the process group of its children."""
        return self._start(*self.framework.worker)

    def send(self, count: int) -> Process:
        """Start a process that sends the tasks 0 to ``count`` - 1."""
        return self._start("-c", f"from {self.framework.app} import send; send({count})")

    def _start(self, *arguments: str) -> Process:
        number = len(self._processes)
        with (self.folder / f"log-{number}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=environment(
                    **{
                        TARGET: self.target,
                        OPTIONS: json.dumps(self._options),
                        LEDGER: self.ledger.path,
                    }
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def logs(self) -> str:
        """What all of them wrote."""
        texts = [path.read_text()[-5000:] for path in sorted(self.folder.glob("log-*"))]
        return "\n".join(texts)

    def has_run(self, count: int) -> None:
        """Return once that many tasks have run."""
        eventually(lambda: self.ledger.count() >= count, f"{count} tasks run: {self.logs()}")

    def children(self, worker: Process) -> list[int]:
        """The process ids of a worker's children, once there are two that use the queue."""
        found: list[int] = []

        def two() -> bool:
            found[:] = [
                child.pid
                for child in psutil.Process(worker.pid).children()
                if "resource_tracker" not in " ".join(child.cmdline())
            ]
            return len(found) >= 2

        eventually(two, f"the worker has two children: {self.logs()}")
        return found

    def kill_all(self) -> None:
        """Kill every process at once, the orphans of killed workers too."""
        kill_groups(self._processes)


def ends(process: Process) -> int:
    """The exit code of the process, which ends on its own."""
    return process.wait(PATIENCE)


@contextlib.contextmanager
def workers(framework: Framework, target: str, folder: Path, **options: Any) -> Iterator[Workers]:
    """The workers of one application, all of whose processes end with the block."""
    folder.mkdir(exist_ok=True)
    started = Workers(framework, target, folder, options)
    try:
        yield started
    finally:
        started.kill_all()


def is_drained(namespace: str) -> bool:
    """Whether the queue holds no task, waiting, delayed or leased."""
    with shmq.connect(namespace) as broker, broker.queue(QUEUE) as queue:
        stats = queue.stats()
        return not stats.depth + stats.delayed + stats.in_flight


def check(ledger: Ledger, namespace: str, count: int, most_twice: int) -> None:
    """Fail unless each task ran, at most so many more than once, and none is a dead letter."""
    runs = ledger.runs()
    missing = [number for number in range(count) if not runs[number]]
    assert missing == []
    assert len(runs) == count
    assert sum(1 for times in runs.values() if times > 1) <= most_twice
    with shmq.connect(namespace) as broker, broker.queue(f"{QUEUE}.dlq") as dead:
        assert dead.qsize() == 0
