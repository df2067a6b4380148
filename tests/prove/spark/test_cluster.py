"""Beyond one process: executors of a cluster reach the broker over TCP, and one of them dies."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest

import shmq
from tests.prove.spark.cluster import CONF, START, driver, kill, said, until, work
from tests.support.certificates import WHY_NOT

#: Batches that the stream makes of the queue.
BATCHES = 4

needs_openssl = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


@needs_openssl
@pytest.mark.watchdog(900)
def test_an_executor_that_is_killed_in_the_middle_loses_nothing_and_doubles_nothing(
    broker: shmq.Broker, tmp_path: Path
) -> None:
    with (
        work(broker, tmp_path, BATCHES, master="local-cluster[2,1,640]", conf=CONF) as job,
        driver(job) as process,
    ):
        until(lambda: job.committed(0), "a batch is committed", process, job)
        with job.held():
            kill(executors(process)[0])
            assert not job.committed(BATCHES - 1), "it was over before the executor was killed"
        assert process.wait(START) == 0, said(job)
        job.check()


def executors(process: psutil.Process) -> list[psutil.Process]:
    """The JVMs of the executors, in a fixed order."""
    found = []
    for each in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()):
                found.append(each)
    assert len(found) >= 2, found
    return sorted(found, key=lambda each: each.pid)
