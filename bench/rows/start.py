"""What starting costs: an import, a command, and the objects of a namespace."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from bench.compiled import ROOT
from bench.machine import now
from bench.row import SECONDS, Contestant, Figure, Role, Row, Turn, at_most, within
from bench.scratch import scratch
from bench.stage import Failed

CPU = Figure("cpu", "ms of CPU time", higher_is_better=False)
TIME = Figure("time", "ms", higher_is_better=False)
BARE = "bare Python"


class Program(Contestant):
    """A Python process from its start to its end: the CPU time, which other load hardly changes.

    ``{}`` in an argument is the name of a namespace with so many ``queues``, of which one is ``q``.
    """

    def __init__(self, label: str, *arguments: str, queues: int = 1) -> None:
        self.label = label
        self.arguments = arguments
        self.queues = queues
        self.role: Role = "harness" if label == BARE else "shmq"

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            for name in ("q", *(f"q{number}" for number in range(1, self.queues))):
                broker.create_queue(name, dead_letter=None).close()
            given = [each.format(broker.namespace) for each in self.arguments]
            _cpu([sys.executable, *given])
            yield lambda _: {CPU.key: _cpu([sys.executable, *given]) * 1e3}


def _cpu(command: list[str]) -> float:
    """Seconds of CPU time of the program. Raises Failed if it fails."""
    # As users have it: the modules are compiled once, not at each start.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def start_row() -> Row:
    """``import shmq`` and short commands, beside an interpreter that does nothing."""
    bare = Program(BARE, "-c", "pass")
    imported = Program("import shmq", "-c", "import shmq")
    asked = Program("shmq --help", "-m", "shmq", "--help")
    listed = Program("shmq list", "-m", "shmq", "--namespace", "{}", "list")
    looked = ("-m", "shmq", "--namespace", "{}", "stats", "q")
    one = Program("shmq stats q", *looked)
    among = Program("shmq stats q among 1,000 queues", *looked, queues=1000)
    return Row(
        key="start",
        title="A Python process from its start to its end",
        contestants=[imported, asked, listed, one, among, bare],
        figures=[CPU],
        bars=[
            within(imported.label, bare.label, 1.7, CPU.key),
            *[at_most(each.label, 90, CPU.unit, CPU.key) for each in (asked, listed)],
            within(among.label, one.label, 1.1, CPU.key),
        ],
        limit="the modules that are imported",
        share=1.5,
    )


class Made(Contestant):
    """A queue is created, or deleted, by a process that has its namespace open."""

    role: Role = "shmq"
    most = 100

    def __init__(self, label: str, deletes: bool) -> None:
        self.label = label
        self.deletes = deletes

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:

            def turn(count: int) -> dict[str, float]:
                names = [f"q{number}" for number in range(count)]
                first = now()
                for name in names:
                    broker.create_queue(name, dead_letter=None).close()
                second = now()
                if len(broker.list_queues()) != count:
                    raise Failed(f"not all of {count} queues are there")
                third = now()
                for name in names:
                    broker.delete_queue(name)
                fourth = now()
                if broker.list_queues():
                    raise Failed("a deleted queue is there")
                spent = fourth - third if self.deletes else second - first
                return {TIME.key: spent / count / 1e6, SECONDS: (fourth - first) / 1e9}

            yield turn


def objects_row() -> Row:
    """Queues with the default options, without a dead-letter queue."""
    made = [Made("shmq create_queue", False), Made("shmq delete_queue", True)]
    return Row(
        key="objects",
        title="A queue is created and deleted",
        contestants=made,
        figures=[TIME],
        bars=[at_most(each.label, 0.5, TIME.unit, TIME.key) for each in made],
        limit="the kernel: a file, its pages and their mapping",
    )
