"""``aggregate``: every message is counted once, in its window or as late."""

from __future__ import annotations

import collections
import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shmq
from shmq.spark.jobs import aggregate
from shmq.spark.jobs.windows import Windows
from tests.prove.spark.jobs.tools import run_job, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = """
checkpoint = "checkpoint"
trigger = "available-now"
[source]
url = "{namespace}"
subscribe = "{queue}"
[aggregate]
window = "{window}"
late = 0
by = {by}
[parquet]
path = "statistics"
[results]
url = "{namespace}"
topic = "statistics"
[hot]
url = "{namespace}"
topic = "hot"
"""

BEGIN = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def at(*moments: float, key: str = "a", latency: float | None = 0.5) -> list[tuple[Any, ...]]:
    """Rows of 10 bytes each, put so many seconds after the beginning."""
    return [(BEGIN + dt.timedelta(seconds=each), 10, latency, key) for each in moments]


def frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, "at timestamp, bytes bigint, latency double, key string")


def seconds(start: dt.datetime) -> float:
    return (start.astimezone(dt.UTC) - BEGIN).total_seconds()


def told(rows: DataFrame, column: str) -> dict[tuple[float, str], int]:
    return {(seconds(row.window_start), row.key): row[column] for row in rows.collect()}


@pytest.fixture
def windows(spark: SparkSession, checkpoint: str) -> Windows:
    """Windows of 10 s, and 5 s for those that are behind."""
    return Windows(spark, checkpoint, ("key",), seconds=10, late=5)


def test_a_window_is_closed_once_the_watermark_has_passed_its_end(
    spark: SparkSession, windows: Windows
) -> None:
    first, _ = windows.add(frame(spark, at(1, 2, 9.999999, 10, 14.999999)), 0)
    second, _ = windows.add(frame(spark, at(3, 15, key="a") + at(4, key="b")), 1)

    assert told(first, "messages") == {}
    assert told(second, "messages") == {(0, "a"): 4, (0, "b"): 1}


def test_who_comes_after_the_window_was_closed_is_counted_as_late(
    spark: SparkSession, windows: Windows
) -> None:
    windows.add(frame(spark, at(1, 20)), 0)

    closed, late = windows.add(frame(spark, at(2, 3, 12, 100) + at(4, key="b")), 1)

    assert told(late, "late") == {(0, "a"): 2, (0, "b"): 1}
    assert told(closed, "messages") == {(10, "a"): 1, (20, "a"): 1}


def test_a_batch_that_is_run_again_gives_the_same(spark: SparkSession, windows: Windows) -> None:
    windows.add(frame(spark, at(1, 2)), 0)
    again = [windows.add(frame(spark, at(3, 16)), 1)[0] for _ in range(2)]
    _, late = windows.add(frame(spark, at(4)), 2)

    assert [told(closed, "messages") for closed in again] == [{(0, "a"): 3}] * 2
    assert told(late, "late") == {(0, "a"): 1}


def test_a_batch_without_rows_keeps_what_is_open(spark: SparkSession, windows: Windows) -> None:
    windows.add(frame(spark, at(1)), 0)
    windows.add(frame(spark, []), 1)

    closed, _ = windows.add(frame(spark, at(30)), 2)

    assert told(closed, "messages") == {(0, "a"): 1}


def test_what_is_said_of_a_window(spark: SparkSession, windows: Windows) -> None:
    quick = at(*(n / 100 for n in range(98)), latency=0.01)
    windows.add(frame(spark, quick + at(1, latency=2.0) + at(2, latency=None)), 0)

    closed, _ = windows.add(frame(spark, at(50)), 1)

    (row,) = closed.collect()
    assert (row.messages, row.rate, row.bytes) == (100, 10.0, 1000)
    assert (row.bytes_mean, row.bytes_max, row.latency_max) == (10.0, 10, 2.0)
    assert row.latency_mean == pytest.approx((98 * 0.01 + 2.0) / 99)
    assert 0.01 <= row.latency_p50 <= 0.011
    assert 0.01 <= row.latency_p99 <= 2.0


def test_open_windows_that_are_gone_are_an_error(spark: SparkSession, windows: Windows) -> None:
    with pytest.raises(shmq.DamagedFile, match="begin with another checkpoint"):
        windows.add(frame(spark, at(1)), 7)


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

    rows = spark.read.parquet(str(tmp_path / "statistics")).collect()
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


def test_what_has_more_than_three_times_the_mean_rate_is_raised(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    flights = broker.create_queue("flights", dead_letter=None)
    broker.create_queue("statistics", dead_letter=None)
    hot = broker.create_queue("hot", dead_letter=None)
    for name in "abcde":
        flights.put_many([b"x"] * (96 if name == "c" else 1), headers={"camera": name})
    path = written(
        tmp_path,
        FILE.format(
            namespace=namespace, queue="flights", window="7d", by='["header.camera"]'
        ).replace("late = 0", "late = 0\nhot = 3"),
    )
    run_job(spark, "aggregate", path)
    assert hot.qsize() == 0  # the window is open

    checkpoint = str(tmp_path / "checkpoint")
    closing = Windows(spark, checkpoint, ("header_camera",), seconds=7 * 86400, late=0)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=15)
    rows = spark.createDataFrame(
        [(later, 1, None, "a")], "at timestamp, bytes bigint, latency double, header_camera string"
    )

    closed, _ = closing.add(rows, 1)

    (row,) = aggregate.hot(closed, 3.0).collect()
    assert (row.header_camera, row.messages) == ("c", 96)
    assert row.times == pytest.approx(96 / 20)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[aggregate]\nby = ["colour"]\n[hot]\ntopic = "hot"', "header.NAME"),
        ('[aggregate]\nby = ["header.a-b", "header.a_b"]\n[hot]\ntopic = "h"', "same column"),
        ("[aggregate]\nwindow = 0", "a time from"),
        ("[aggregate]", r"\[parquet\], \[results\], \[hot\]"),
        ('[aggregate]\nuntil = "acked_at"\n[hot]\ntopic = "h"', "column of files"),
    ],
)
def test_a_file_that_is_wrong_is_refused(
    spark: SparkSession, tmp_path: Path, text: str, why: str
) -> None:
    head = 'checkpoint = "c"\n[source]\nsubscribe = "flights"\n'

    with pytest.raises(shmq.InvalidOption, match=why):
        run_job(spark, "aggregate", written(tmp_path, head + text))
