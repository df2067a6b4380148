"""A contestant: a framework's own worker, with two processes, on one broker."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import psutil

from bench.compiled import ROOT
from bench.ending import unbroken
from bench.frameworks.ledger import PIPE, Ledger
from bench.frameworks.modules import absent
from bench.frameworks.servers import RabbitMq
from bench.machine import cpu_clock, now
from bench.row import RATE, SECONDS, Contestant, Figure, Role, Turn
from bench.scratch import delete_all, unique_name
from bench.stage import Failed
from bench.tcp.server import HOST, Server, running
from bench.tcp.servers import Redis, Shmq

LATENCY: Final = Figure("latency", "ms from send to run", higher_is_better=False)
IDLE: Final = Figure("idle", "% of a core", higher_is_better=False)

#: What is measured.
Work = Literal["rate", "latency", "idle"]
#: Tasks that are sent at most one at a time for a latency, and the longest pause between two.
_SENT, _PAUSE = 20, 0.02
#: What a worker that did not run at all counts as, in ns of CPU: ratios need a number.
_LEAST = 1000


class Framework(NamedTuple):
    """How a framework's worker is started, by the module of its application."""

    name: str
    module: str
    command: list[str]


CELERY: Final = Framework(
    "celery",
    "bench.frameworks.celery_app",
    [
        *("celery", "-A", "bench.frameworks.celery_app", "worker", "--pool=prefork"),
        *("--concurrency=2", "--loglevel=ERROR", "--without-gossip", "--without-mingle"),
        "--without-heartbeat",
    ],
)
DRAMATIQ: Final = Framework(
    "dramatiq",
    "bench.frameworks.dramatiq_app",
    ["dramatiq", "bench.frameworks.dramatiq_app:broker", "--processes", "2", "--threads", "1"],
)
TASKIQ: Final = Framework(
    "taskiq",
    "bench.frameworks.taskiq_app",
    [
        *("taskiq", "worker", "bench.frameworks.taskiq_app:broker", "--workers", "2"),
        *("--log-level", "ERROR"),
    ],
)
HUEY: Final = Framework(
    "huey",
    "bench.frameworks.huey_app",
    [
        *("huey.bin.huey_consumer", "bench.frameworks.huey_app.huey", "--quiet"),
        *("--workers", "2", "--worker-type", "process"),
    ],
)


class Peer(NamedTuple):
    """A broker: its server, its URL for a framework, and the modules that it needs."""

    label: str
    role: Role
    server: type[Server] | None
    url: Callable[[Framework], str]
    needs: Callable[[Framework], tuple[str, ...]]


def _local(framework: Framework) -> str:
    """A new namespace, as the framework's broker takes it."""
    return ("shmq://" if framework is CELERY else "") + unique_name()


def _integration(framework: Framework) -> tuple[str, ...]:
    return (f"shmq.extras.{framework.name}",)


def _redis(_: Framework) -> str:
    return f"redis://{HOST}:{running(Redis).port}/0"


LOCAL: Final = Peer("shmq", "shmq", None, _local, _integration)
TCP: Final = Peer(
    "shmq over TCP", "shmq", Shmq, lambda _: f"shmq://{HOST}:{running(Shmq).port}", _integration
)
REDIS: Final = Peer(
    "Redis",
    "peer",
    Redis,
    _redis,
    lambda framework: ("redis", *(("taskiq_redis",) if framework is TASKIQ else ())),
)
REDIS_PLUS: Final = Peer(
    "Redis, celery-redis-plus",
    "peer",
    Redis,
    lambda framework: "celery_redis_plus.Transport://" + _redis(framework).partition("://")[2],
    lambda _: ("celery_redis_plus",),
)
RABBITMQ: Final = Peer(
    "RabbitMQ",
    "peer",
    RabbitMq,
    lambda _: running(RabbitMq).url,
    lambda framework: {"celery": ("amqp",), "dramatiq": ("pika",), "taskiq": ("taskiq_aio_pika",)}[
        framework.name
    ],
)


class Worker(Contestant):
    """The worker of a framework on a broker."""

    def __init__(self, framework: Framework, peer: Peer, work: Work, tiny: bool = False) -> None:
        self.label = peer.label
        self.role = peer.role
        self._framework = framework
        self._peer = peer
        self._work: Work = work
        self._tiny = tiny
        self._next = random.getrandbits(48)  # no task has the number of one of another row
        if work == "rate":
            self.least, self.most = (20, 20) if tiny else (200, 20_000)

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        needed = (self._framework.name, *self._peer.needs(self._framework))
        return absent(*needed) or (self._peer.server.missing() if self._peer.server else None)

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Worker(self._framework, self._peer, self._work, tiny=True)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        url = self._peer.url(self._framework)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            if self._peer is LOCAL:
                stack.callback(delete_all, url.removeprefix("shmq://"))
            ledger = Ledger(folder / "ledger")
            stack.callback(ledger.close)
            process = stack.enter_context(self._started(url, folder))
            module = importlib.import_module(self._framework.module)
            send = stack.enter_context(module.sender(url))
            try:
                self._run(send, ledger, 4, strangers=True)  # the worker is ready
            except Failed as error:
                log = (folder / "log").read_text(errors="replace")
                raise Failed(f"{error}: {log[-2000:]}") from None
            turns: dict[Work, Turn] = {
                "rate": lambda amount: self._rate(send, ledger, amount),
                "latency": lambda _: self._latency(send, ledger),
                "idle": lambda _: self._idle(process),
            }
            yield turns[self._work]

    @contextlib.contextmanager
    def _started(self, url: str, folder: Path) -> Iterator[psutil.Process]:
        environment = {
            **os.environ,
            "BENCH_BROKER": url,
            PIPE: str(folder / "ledger"),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", *self._framework.command]
        with (folder / "log").open("wb") as log, unbroken():
            process = psutil.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        try:
            yield process
        finally:
            end_process(process)

    def _run(
        self, send: Callable[[range], None], ledger: Ledger, amount: int, *, strangers: bool = False
    ) -> dict[int, int]:
        numbers = range(self._next, self._next + amount)
        self._next += amount
        send(numbers)
        return ledger.await_all(numbers, strangers=strangers)

    def _rate(self, send: Callable[[range], None], ledger: Ledger, amount: int) -> dict[str, float]:
        begun = now()
        ran = self._run(send, ledger, amount)
        seconds = (max(ran.values()) - begun) / 1e9
        return {RATE.key: amount / seconds, SECONDS: seconds}

    def _latency(self, send: Callable[[range], None], ledger: Ledger) -> dict[str, float]:
        found = []
        for _ in range(3 if self._tiny else _SENT):
            time.sleep(random.uniform(_PAUSE / 2, _PAUSE))  # so that it is idle again
            begun = now()
            (at,) = self._run(send, ledger, 1).values()
            found.append((at - begun) / 1e6)
        return {LATENCY.key: statistics.median(found)}

    def _idle(self, process: psutil.Process) -> dict[str, float]:
        seconds = 0.5 if self._tiny else 1.0
        family = [process, *process.children(recursive=True)]
        before, begun = _cpu(family), now()
        time.sleep(seconds)
        spent = max(_cpu(family) - before, _LEAST)
        return {IDLE.key: 100 * spent / (now() - begun)}


def _cpu(family: list[psutil.Process]) -> int:
    return sum(time.clock_gettime_ns(cpu_clock(each.pid)) for each in family)


def end_process(process: psutil.Process) -> None:
    """End a worker and all of its processes: no task is left to finish."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [process, *process.children(recursive=True)]
        process.terminate()
        _, left = psutil.wait_procs(family, timeout=5)
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(left, timeout=5)
