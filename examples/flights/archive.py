"""The end of the run: Spark reads the counted flights from their queue and adds them up."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import psutil

from examples.flights.delays import add_up
from examples.flights.errors import DemoError
from examples.flights.queues import COUNTED, PATIENCE
from examples.flights.tally import Sums
from examples.flights.workers import interrupts_blocked
from shmq.errors import ShmqError
from shmq.host.supervision.signals import end_with_parent

_SPAWN: Final = multiprocessing.get_context("spawn")

#: The file of the job ``shmq pipeline archive``.
_JOB: Final = """\
checkpoint = "checkpoint"
trigger = "available-now"

[source.options]
url = {namespace}
subscribe = {queue}

[sink]
path = "parquet"
"""
#: Spark's configuration: as much memory as a small machine can spare.
_CONF: Final = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}
#: How long Spark may take, in seconds.
_LIMIT: Final = 600.0
#: The packages that Spark and the plot need besides shmq.
_PACKAGES: Final = ("pyspark", "pyarrow", "pandas", "matplotlib")


@dataclasses.dataclass(frozen=True, slots=True)
class Archived:
    """The result of Spark."""

    #: Rows in the Parquet files, and how many flights they have.
    rows: int
    flights: int
    #: The sums of each carrier in each hour of the day.
    delays: dict[tuple[str, int], Sums]
    #: From the start of the stream until the queue was empty.
    seconds: float


def missing() -> str | None:
    """What must be installed for Spark; None: nothing."""
    absent = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return f"{', '.join(absent)} is not installed: pip install 'shmq[demo]'"


def archive(namespace: str) -> Archived:
    """Move the counted flights into Parquet files, and add them up.

    Spark runs in its own process, which ends with this call. Raises :class:`DemoError` with its
    last line of output if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="shmq-demo-", ignore_cleanup_errors=True) as folder:
        ours, theirs = _SPAWN.Pipe(duplex=False)
        arguments = (theirs, namespace, folder, os.getpid())
        process = _SPAWN.Process(target=_work, args=arguments, name="spark")
        with interrupts_blocked():
            process.start()
        theirs.close()
        try:
            kind, value = _answer(ours)
            if kind == "failed":
                raise DemoError(f"Spark did not archive the flights: {value or _log(folder)}")
        finally:
            _end(process)
            ours.close()
        assert isinstance(value, Archived)
        return value


def _answer(pipe: Connection) -> tuple[str, Any]:
    if not pipe.poll(_LIMIT):
        raise DemoError(f"Spark did not archive the flights within {_LIMIT:.0f} s")
    with contextlib.suppress(EOFError):
        found: tuple[str, Any] = pipe.recv()
        return found
    return "failed", None


def _end(process: BaseProcess) -> None:
    """End the process and all that it has started: Java and Spark's own processes."""
    assert process.pid is not None
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.join(PATIENCE)
        _, left = psutil.wait_procs(family, PATIENCE)
        for one in left:
            one.kill()
        psutil.wait_procs(left)
    process.kill()
    process.join()


def _log(folder: str) -> str:
    """The last line that Spark wrote."""
    with contextlib.suppress(OSError, IndexError):
        return Path(folder, "log").read_text(errors="replace").strip().splitlines()[-1]
    return "it has ended without a word"


# ---- the process of Spark ----


def _work(pipe: Connection, namespace: str, folder: str, parent: int) -> None:
    end_with_parent(parent, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for Java, too: the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Path(folder, "log").open("wb") as log:  # keeps Java's output off the screen
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        pipe.send(("done", _archived(namespace, Path(folder))))
    except ShmqError as error:
        pipe.send(("failed", str(error)))
    pipe.close()
    signal.pause()  # until the parent has found the processes to end


def _archived(namespace: str, folder: Path) -> Archived:
    import shmq.spark  # noqa: PLC0415 - an extra that only this process needs
    from shmq.spark.jobs import catalog, runner  # noqa: PLC0415

    path = folder / "archive.toml"
    names = {"namespace": json.dumps(namespace), "queue": json.dumps(COUNTED)}
    path.write_text(_JOB.format(**names))
    job = catalog.load("archive")
    spark = shmq.spark.session(
        "examples.flights", master="local[2]", conf={**_CONF, "spark.local.dir": folder / "spark"}
    )
    try:
        began = time.monotonic()
        runner.run(job, job.read(path), spark, lambda _: None, lambda: False)
        seconds = time.monotonic() - began
        current = json.loads((folder / "parquet/_current.json").read_text())["path"]
        return Archived(*add_up(spark.read.parquet(str(folder / "parquet" / current))), seconds)
    finally:
        spark.stop()
