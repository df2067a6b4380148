"""``archive``: what is in the queues is in the files, each message once."""

from __future__ import annotations

import collections
import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import shmq
from tests.prove.spark.jobs.tools import rows_of, run_job, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = """
checkpoint = "checkpoint"
trigger = "available-now"
[source.options]
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
    rows = rows_of(spark, tmp_path / "archive").collect()
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
    assert rows_of(spark, tmp_path / "archive").select("offset").distinct().count() == 5
