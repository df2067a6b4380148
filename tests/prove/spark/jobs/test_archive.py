"""``archive``: what is in the queues is in the files, each message once."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import shmq
from tests.prove.spark.jobs.tools import run_job, written
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = """
checkpoint = "checkpoint"
trigger = "available-now"
[source]
url = "{namespace}"
subscribePattern = "results.*"
includeHeaders = true
[sink]
path = "archive"
"""


def test_each_message_is_archived_once_in_the_folder_of_its_queue_and_day(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    one = broker.create_queue("results:1", dead_letter=None)
    two = broker.create_queue("results:2", dead_letter=None)
    for number in range(100):
        one.put({"number": number}, headers={"host": "a"})
        two.put(f"text {number}", priority=shmq.HIGH)
    path = written(tmp_path, NOW.format(namespace=namespace))

    done = run_job(spark, "archive", path)

    assert done.rows == 200
    assert one.stats().depth == two.stats().depth == 0
    rows = spark.read.parquet(str(tmp_path / "archive")).collect()
    found = collections.Counter((row.topic, bytes(row.value)) for row in rows)
    assert found == {
        **{("results:1", b"\x81\xa6number" + _packed(n)): 1 for n in range(100)},
        **{("results:2", f"text {n}".encode()): 1 for n in range(100)},
    }
    assert {row.headers[0].key for row in rows if row.headers} == {"host"}
    today = dt.datetime.now(dt.UTC).date()
    assert {row.date for row in rows} <= {today, today - dt.timedelta(days=1)}
    assert {row.codec for row in rows} == {"msgpack", "text"}


def _packed(number: int) -> bytes:
    return bytes([number])


def test_a_job_that_goes_on_adds_what_has_come_since_and_nothing_twice(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    queue = broker.create_queue("results", dead_letter=None)
    path = written(tmp_path, NOW.format(namespace=namespace))

    totals = []
    for count in (3, 0, 2):
        queue.put_many([f"{queue.stats().put} {n}" for n in range(count)])
        totals.append(run_job(spark, "archive", path).rows)

    assert totals == [3, 0, 2]
    assert spark.read.parquet(str(tmp_path / "archive")).select("offset").distinct().count() == 5


FOR_EVER = """
checkpoint = "checkpoint"
trigger = "100ms"
[source]
subscribe = "results"
maxOffsetsPerTrigger = 150
[sink]
path = "archive"
merge_files = 2
keep_merged = 0
[spark]
master = "local[2]"
spark.driver.memory = "1g"
spark.sql.shuffle.partitions = 2
"""


class Pipeline:
    """The command as a process of a session of its own, Java and workers with it."""

    def __init__(self, namespace: str, folder: Path) -> None:
        shell = Shell(namespace)
        self.errors = folder / "stderr"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                shell.command("pipeline", "archive", str(folder / "job.toml")),
                env=shell.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill all of it, and wait until it is gone."""
        family = []
        if self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.communicate()
        psutil.wait_procs(family)


def wait(pipeline: Pipeline, condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail as soon as the pipeline has ended."""
    while not condition():
        assert pipeline.process.poll() is None, pipeline.errors.read_text()
        time.sleep(0.02)


@pytest.mark.watchdog(900)
def test_the_command_archives_each_message_once_through_a_kill_and_stops_cleanly(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    queue = broker.create_queue("results", dead_letter=None, max_deliveries=None)
    bodies = [f"message {number}".encode() for number in range(900)]
    queue.put_many(bodies)
    written(tmp_path, FOR_EVER)
    versions = tmp_path / "archive" / "_spark_metadata"

    killed = Pipeline(namespace, tmp_path)
    try:
        wait(killed, lambda: versions.exists() and len(list(versions.glob("[0-9]*"))) >= 2)
    finally:
        killed.kill()
    left = queue.stats()
    assert 0 < left.depth + left.in_flight <= len(bodies)
    again = Pipeline(namespace, tmp_path)
    try:
        wait(again, lambda: queue.stats().depth + queue.stats().in_flight <= 150)
        again.process.send_signal(signal.SIGTERM)
        out, _ = again.process.communicate()
    finally:
        if again.process.poll() is None:
            again.kill()

    assert again.process.returncode == 0, again.errors.read_text()
    assert re.fullmatch(rb"archive: stopped, [\d,]+ rows\n", out)
    assert "shmq: archive: batch " in again.errors.read_text()
    stats = queue.stats()
    rows = spark.read.parquet(str(tmp_path / "archive")).select("value").collect()
    archived = sorted(bytes(row.value) for row in rows)
    waiting = [message.body for message in queue.get_many(len(bodies), timeout=0)]
    assert stats.in_flight == 0
    assert sorted([*archived, *waiting]) == sorted(bodies), "what is archived is acknowledged"
