"""Beyond one process: executors of a cluster reach the broker over TCP, and one of them dies."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmq
from tests.prove.spark.cluster_job import BATCHES
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.processes import PATIENCE, ROOT
from tests.support.server import serve

MESSAGES = 2_000
#: A driver and two executors of a busy machine take their time, in seconds.
START = 4 * PATIENCE
SOURCE, TARGET = "jobs", "back"
TOKEN = "a token for a team of executors, and no other"
#: What a stream from one queue to another takes, and no more.
RIGHTS = {"consume": [SOURCE], "produce": [TARGET]}

needs_openssl = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


def values() -> list[str]:
    return [f"message {number}" for number in range(MESSAGES)]


@contextlib.contextmanager
def driver(given: dict[str, Any], folder: Path) -> Iterator[psutil.Popen]:
    """The job of a driver in a process of its own, whose output is in ``folder``."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = psutil.Popen(
            [sys.executable, "-m", "tests.prove.spark.cluster_job", json.dumps(given)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    try:
        yield process
    finally:
        family = process.children(recursive=True) if process.is_running() else []
        for one in [process, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs([process, *family])


@needs_openssl
@pytest.mark.watchdog(420)
def test_an_executor_that_is_killed_in_the_middle_loses_nothing_and_doubles_nothing(
    broker: shmq.Broker, tmp_path: Path
) -> None:
    from pyarrow import parquet

    jobs = broker.create_queue(SOURCE, capacity=MESSAGES)
    back = broker.create_queue(TARGET, capacity=MESSAGES)
    jobs.put_many(values())
    certificates = Certificates(tmp_path)
    certificate, key = certificates.sign("server")
    with (
        serve(
            broker.namespace, tokens={TOKEN: RIGHTS}, tls={"certificate": certificate, "key": key}
        ) as server,
        driver(given(server.url, certificates.ca, tmp_path), tmp_path) as process,
    ):
        commits = tmp_path / "checkpoint" / "commits"
        until(lambda: (commits / "1").exists() or ended(process, tmp_path), "a batch is committed")
        kill(executors(process)[0])
        last = commits / str(BATCHES - 1)
        assert not last.exists(), "the stream was over before the executor was killed"

        assert process.wait(START) == 0, said(tmp_path)

    seen = json.loads((tmp_path / "out").read_text())
    assert seen == {"rows": MESSAGES, "values": sorted(values())}
    rows = parquet.read_table(tmp_path / "rows", columns=["value"]).column("value").to_pylist()
    assert sorted(rows) == sorted(value.encode() for value in values())
    written = [bytes(message.body) for message in back.get_many(MESSAGES + 1, block=False)]
    assert sorted(written) == sorted(value.encode() for value in values())
    stats = jobs.stats()
    assert (stats.acked, stats.depth, stats.in_flight) == (MESSAGES, 0, 0)


def given(url: str, ca: Path, folder: Path) -> dict[str, Any]:
    return {
        "master": "local-cluster[2,1,640]",
        "folder": str(folder),
        "source": SOURCE,
        "target": TARGET,
        "options": {"url": url, "token": TOKEN, "tlsCa": str(ca)},
        "conf": {
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.network.timeout": "60s",
            "spark.sql.shuffle.partitions": "4",
        },
    }


def executors(process: psutil.Process) -> list[psutil.Process]:
    """The JVMs of the executors, in a fixed order."""
    found = []
    for each in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()):
                found.append(each)
    assert len(found) >= 2, found
    return sorted(found, key=lambda each: each.pid)


def kill(process: psutil.Process) -> None:
    """Kill it with its Python workers."""
    for each in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def until(there: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + START
    while not there():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.02)


def ended(process: psutil.Popen, folder: Path) -> bool:
    """Whether the driver has ended, which it has not to yet: raises what it said."""
    assert process.poll() is None, said(folder)
    return False


def said(folder: Path) -> str:
    return (folder / "err").read_text(errors="replace")[-6000:]
