"""``aggregate``: every message is counted once, in its window or as late."""

from __future__ import annotations

import collections
import datetime as dt
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import shmq
from tests.prove.spark.jobs.tools import rows_of, run_job, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
checkpoint = "checkpoint"
trigger = "available-now"
[source.options]
url = "{namespace}"
subscribe = "{queue}"
[aggregate]
window = "{window}"
late = 0
by = {by}
[sink]
path = "statistics"
[results.options]
url = "{namespace}"
topic = "statistics"
[hot.options]
url = "{namespace}"
topic = "hot"
"""

#: Where the times of records are counted from, in seconds.
BEGIN = 1_700_000_000.0

CLOCK = """
checkpoint = "checkpoint"
trigger = "available-now"
[source.options]
url = "{namespace}"
subscribe = "clock"
startingOffsets = "earliest"
[aggregate]
window = "10s"
late = "5s"
by = ["key"]
[sink]
path = "statistics"
"""


class Clock:
    """A stream of records with chosen times, and the job that counts them."""

    def __init__(self, spark: SparkSession, broker: shmq.Broker, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._stream = broker.create_stream("clock", 1, ring_bytes=1 << 20)
        self.path = written(folder, CLOCK.format(namespace=broker.namespace))

    def batch(self, *moments: float, key: str = "a") -> None:
        """Append a record of ten bytes for each time, without a batch of the job."""
        for moment in moments:
            self._stream.append(b"0123456789", key=key, timestamp=BEGIN + moment)

    def run(self) -> int:
        """Let the job count what is there; how many records it read."""
        return run_job(self._spark, "aggregate", self.path).rows

    def told(self, column: str) -> collections.Counter[tuple[float, str]]:
        """A column of all that the job wrote, by window and key, without zeros."""
        told: collections.Counter[tuple[float, str]] = collections.Counter()
        for row in rows_of(self._spark, self._folder / "statistics").collect():
            start = row.window_start.replace(tzinfo=dt.UTC).timestamp() - BEGIN
            told[start, row.key] += row[column]
        return +told


@pytest.fixture
def clock(spark: SparkSession, broker: shmq.Broker, tmp_path: Path) -> Clock:
    """Windows of 10 s, and 5 s for those that are behind."""
    return Clock(spark, broker, tmp_path)


def test_a_window_is_closed_once_the_watermark_has_passed_its_end(clock: Clock) -> None:
    clock.batch(1, 2, 9.999999, 10, 14.999999)
    assert clock.run() == 5
    assert clock.told("messages") == {}
    clock.batch(3, 15)
    clock.batch(4, key="b")
    clock.run()

    assert clock.told("messages") == {(0, "a"): 4, (0, "b"): 1}


def test_each_record_is_in_its_window_or_counted_as_late(clock: Clock) -> None:
    """The sums over closed windows and late counts are exact, whatever the order of times."""
    chance = random.Random(7)
    wanted: collections.Counter[tuple[float, str]] = collections.Counter()
    for turn in range(4):
        for _ in range(40):
            moment = max(0.0, turn * 25 + chance.uniform(-30, 10))
            key = chance.choice("ab")
            clock.batch(moment, key=key)
            wanted[moment // 10 * 10, key] += 1
        assert clock.run() == 40
    clock.batch(1000)
    clock.run()

    messages, late = clock.told("messages"), clock.told("late")

    assert messages + late == wanted
    assert messages
    assert late


def test_what_is_said_of_a_window(clock: Clock, spark: SparkSession, tmp_path: Path) -> None:
    clock.batch(*(n / 100 for n in range(100)))
    clock.batch(1000)
    clock.run()

    (row,) = rows_of(spark, tmp_path / "statistics").collect()
    assert (row.messages, row.rate, row.bytes, row.late) == (100, 10.0, 1000, 0)
    assert (row.bytes_mean, row.bytes_max) == (10.0, 10)
    assert (row.window_end - row.window_start).total_seconds() == 10
    assert row.latency_p50 <= row.latency_p99 <= row.latency_max
    assert row.latency_mean == pytest.approx(row.latency_p50, rel=0.01)


def test_each_message_is_counted_once_and_goes_to_files_and_queues(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    flights = broker.create_queue("flights", dead_letter=None)
    statistics = broker.create_queue("statistics", dead_letter=None)
    hot = broker.create_queue("hot", dead_letter=None)
    text = FILE.format(
        namespace=namespace, queue="flights", window="1ms", by='["queue", "group", "header.kind"]'
    )
    path = written(tmp_path, text)
    wanted: collections.Counter[tuple[str | None, ...]] = collections.Counter()
    for number in range(20):
        # Two of each: none is hot, however many are put within one window.
        group, kind = (f"g{number // 2}", "x") if number > 1 else (None, None)
        flights.put(b"0123456789", group=group, headers={"kind": kind} if kind else None)
        wanted[group, kind] += 1
    run_job(spark, "aggregate", path)
    flights.put(b"the end")
    run_job(spark, "aggregate", path)

    rows = rows_of(spark, tmp_path / "statistics").collect()
    counted: collections.Counter[tuple[str | None, ...]] = collections.Counter()
    for row in rows:
        counted[row.group, row.header_kind] += row.messages + row.late
        assert row.queue == "flights"
        assert row.window_end - row.window_start == dt.timedelta(milliseconds=1)
        if row.messages:
            assert row.latency_p50 <= row.latency_max
            assert row.bytes == row.messages * 10
    assert counted == wanted
    sent = [json.loads(bytes(message.view)) for message in statistics.get_many(10_000, timeout=0)]
    assert len(sent) == len(rows)
    assert sum(each["messages"] + each["late"] for each in sent) == 20
    assert hot.qsize() == 0
    assert flights.stats().depth == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[aggregate]\nby = ["colour"]\n[hot.options]\ntopic = "hot"', "header.NAME"),
        (
            '[aggregate]\nby = ["header.a-b", "header.a_b"]\n[hot.options]\ntopic = "h"',
            "same column",
        ),
        ('[aggregate]\nwindow = 0\n[hot.options]\ntopic = "h"', "must be 1 ms or more"),
        ("[aggregate]", r"\[sink\], \[results\], \[hot\]"),
        ('[aggregate]\nuntil = "acked_at"\n[hot.options]\ntopic = "h"', "column of files"),
    ],
)
def test_a_file_that_is_wrong_is_refused(
    spark: SparkSession, tmp_path: Path, text: str, why: str
) -> None:
    head = 'checkpoint = "c"\n[source.options]\nsubscribe = "flights"\n'

    with pytest.raises(shmq.InvalidOption, match=why):
        run_job(spark, "aggregate", written(tmp_path, head + text))
