"""What a console costs: its process while it observes many queues, and a scrape of its metrics."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import psutil

from bench.compiled import ROOT
from bench.machine import cpu_clock, now
from bench.row import Contestant, Figure, Role, Row, Turn, at_most
from bench.scratch import scratch
from bench.stage import Failed

SHARE = Figure("observing", "% of a core", higher_is_better=False)
SCRAPE = Figure("scrape", "s", higher_is_better=False)
QUEUES, SECONDS_OF_LOOKS, SCRAPES = 1000, 20.0, 5
LABEL = "shmq console, 1,000 queues"


class Watched(Contestant):
    """A console of queues that nobody uses."""

    label = LABEL
    role: Role = "shmq"

    def __init__(self, queues: int = QUEUES, seconds: float = SECONDS_OF_LOOKS) -> None:
        self.queues = queues
        self.seconds = seconds

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        needed = ("prometheus_client", "uvicorn", "starlette")
        absent = [name for name in needed if importlib.util.find_spec(name) is None]
        return f"no {', '.join(absent)}: pip install 'shmq[console]'" if absent else None

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Watched(20, 0.5)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            for number in range(self.queues):
                broker.create_queue(f"q{number}", dead_letter=None, capacity=64).close()
            with _console(broker.namespace) as (process, url):
                self._verify(_scraped(url)[1])
                yield lambda _: {
                    SHARE.key: self._share(process),
                    SCRAPE.key: statistics.median(_scraped(url)[0] for _ in range(SCRAPES)),
                }

    def _share(self, process: psutil.Process) -> float:
        clock = cpu_clock(process.pid)
        before, begun = time.clock_gettime_ns(clock), now()
        time.sleep(self.seconds)
        after, ended = time.clock_gettime_ns(clock), now()
        return 100 * (after - before) / (ended - begun)

    def _verify(self, page: str) -> None:
        from prometheus_client.openmetrics import parser

        families = parser.text_string_to_metric_families(page)
        samples = [one for family in families for one in family.samples]
        found = {one.labels["queue"] for one in samples if one.name == "shmq_queue_up"}
        if len(found) != self.queues:
            raise Failed(f"/metrics has {len(found)} queues of {self.queues}")


def _scraped(url: str) -> tuple[float, str]:
    """How long /metrics took, in seconds, and its text."""
    begun = now()
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    return (now() - begun) / 1e9, page


@contextlib.contextmanager
def _console(namespace: str) -> Iterator[tuple[psutil.Process, str]]:
    """The process of ``shmq console``, and where it listens."""
    command = ["-m", "shmq", "--namespace", namespace, "console", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"the console is at (\S+)/:", line)
            if found is None:
                raise Failed(f"the console does not listen: {line.strip()}")
            yield psutil.Process(process.pid), found[1]
        finally:
            process.terminate()


def row() -> Row:
    """With 1,000 queues."""
    return Row(
        key="console",
        title="A console beside 1,000 queues that nobody uses",
        contestants=[Watched()],
        figures=[SHARE, SCRAPE],
        bars=[
            at_most(LABEL, 5, SHARE.unit, SHARE.key),
            at_most(LABEL, 0.3, SCRAPE.unit, SCRAPE.key),
        ],
        limit="each queue is read once a second: its numbers and who is attached",
        visits=3,
    )
