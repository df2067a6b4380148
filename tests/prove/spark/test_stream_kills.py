"""A stream whose Python processes are killed, over and over: each message is in its output once.

The process that holds the leases is among them, and so are those of the tasks. What kills the
driver and Java, too, is in the long hunt: ``make spark-soak``.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import shmq

MESSAGES = 1200
KILLS = 4
PATIENCE = 240


def python_processes(spark: SparkSession) -> list[psutil.Process]:
    """Those of the tasks, and those that stand beside the driver.

    But for those that only fork others: without them Spark cannot even begin a query.
    """
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = psutil.Process(gateway.proc.pid)
    found = []
    for process in java.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            forks = process.ppid() == java.pid and "pyspark.daemon" in process.cmdline()
            if "python" in process.name() and not forks:
                found.append(process)
    return found


@pytest.mark.watchdog(600)
def test_every_message_is_in_the_output_once_whoever_is_killed(
    spark: SparkSession, broker: shmq.Broker, checkpoint: str, tmp_path: Path
) -> None:
    orders = broker.create_queue("orders", max_deliveries=50)
    orders.put_many([b"%06d" % n for n in range(MESSAGES)])
    output = str(tmp_path / "output")
    chance = random.Random(7)

    def plan() -> StreamingQuery:
        reader = spark.readStream.format("shmq").options(url=broker.namespace, subscribe="orders")
        frame = reader.option("maxOffsetsPerTrigger", 100).load().select("value")
        writer = frame.writeStream.format("parquet").option("path", output)
        writer = writer.option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start()

    def start() -> StreamingQuery:
        """A query; Spark may give its plan to an idle process that was killed, and to another."""
        for _ in range(50):
            try:
                return plan()
            except Exception as error:  # Java's
                assert "exited unexpectedly" in str(error)
        raise AssertionError("Spark has no process that lives")

    query = start()
    try:
        for _ in range(KILLS):
            wait_for_progress(query, chance.randrange(1, 4))
            kill_some(python_processes(spark), chance)
            if not still_runs(query):
                query = start()
        while not ends_well(query):
            query = start()
    finally:
        query.stop()

    rows = spark.read.parquet(output).collect()
    assert sorted(row.value for row in rows) == [b"%06d" % n for n in range(MESSAGES)]
    assert orders.stats().depth == orders.stats().in_flight == 0


def wait_for_progress(query: StreamingQuery, batches: int) -> None:
    """Until the query has done so many batches more, or has ended."""
    before = len(query.recentProgress)
    while query.isActive and len(query.recentProgress) < before + batches:
        time.sleep(0.02)


def kill_some(processes: list[psutil.Process], chance: random.Random) -> None:
    for process in chance.sample(processes, chance.randrange(len(processes) + 1)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def still_runs(query: StreamingQuery) -> bool:
    """Whether the query does another batch, or else has ended."""
    wait_for_progress(query, 1)
    return bool(query.isActive)


def ends_well(query: StreamingQuery) -> bool:
    """Whether the query comes to its end; it may also fail, by a process that was killed."""
    try:
        assert query.awaitTermination(PATIENCE)
    except StreamingQueryException:
        return False
    return True
