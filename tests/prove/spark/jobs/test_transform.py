"""``transform``: rows go through a function, each once, and bad bodies where they are meant to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import shmq
from shmq import InvalidOption, NoSuchQueue, ShmqError
from tests.prove.spark.jobs.tools import current, rows_of, run_job, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "tests.prove.spark.jobs.pipeline_app"

JOB = """
checkpoint = "checkpoint"
trigger = "available-now"
[source.options]
url = "{namespace}"
subscribe = "flights"
[transform]
function = "{app}:{function}"
{rest}
"""

DECODED = """
[decode]
schema = "carrier STRING NOT NULL, delay INT"
bad = "{bad}"
"""

TO_QUEUE = '[sink.options]\nurl = "{namespace}"\ntopic = "late"\n'
TO_FILES = '[sink]\nformat = "parquet"\npath = "out"\npartition_by = "carrier"\n'
BAD_TO_QUEUE = '[bad.options]\nurl = "{namespace}"\ntopic = "bad"\n'
BAD_TO_FILES = '[bad]\nformat = "parquet"\npath = "bad"\n'

PROBLEM = "has the codec 'text', which has no fields"

FLIGHTS = [
    {"carrier": "AA", "delay": 45},
    {"carrier": "AA", "delay": 3},
    {"carrier": "UA", "delay": 60},
]


@pytest.fixture
def flights(broker: shmq.Broker) -> shmq.Queue:
    """A queue with three flights, and two others for what becomes of them."""
    queue = broker.create_queue("flights", dead_letter=None)
    queue.put_many(FLIGHTS)
    broker.create_queue("late", dead_letter=None)
    broker.create_queue("bad", dead_letter=None)
    return queue


def bodies(broker: shmq.Broker, name: str) -> list[str]:
    with broker.queue(name) as queue:
        return sorted(
            message.body if isinstance(message.body, str) else message.body.decode()
            for message in queue.get_many(100, timeout=0)
        )


def job(folder: Path, namespace: str, function: str, rest: str) -> Path:
    text = JOB.format(namespace=namespace, app=APP, function=function, rest=rest)
    return written(folder, text.replace("{namespace}", namespace))


def test_a_queue_goes_through_a_function_into_another(
    spark: SparkSession, broker: shmq.Broker, flights: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    path = job(tmp_path, namespace, "late", DECODED.format(bad="fail") + TO_QUEUE)

    assert run_job(spark, "transform", path).rows == 3
    assert run_job(spark, "transform", path).rows == 0

    assert flights.stats().depth == 0
    with broker.queue("late") as late:
        found = late.get_many(10, timeout=0)
    assert sorted(bytes(message.view) for message in found) == [
        b'{"carrier":"AA","delay":45}',
        b'{"carrier":"UA","delay":60}',
    ]
    assert sorted(str(message.group) for message in found) == ["AA", "UA"]


def test_bad_bodies_are_dropped_and_counted(
    spark: SparkSession, broker: shmq.Broker, flights: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    flights.put_many([{"delay": 1}, "no map"])
    path = job(tmp_path, namespace, "with_carrier", DECODED.format(bad="drop") + TO_FILES)

    done = run_job(spark, "transform", path)

    assert (done.rows, done.counts) == (5, {"bad bodies dropped": 2})
    rows = rows_of(spark, tmp_path / "out").collect()
    assert sorted((row.carrier, row.delay) for row in rows) == [("AA", 3), ("AA", 45), ("UA", 60)]
    assert list(current(tmp_path / "out").glob("shmq_batch=*/carrier=UA"))


@pytest.mark.parametrize("where", ["queue", "files"])
def test_bad_bodies_go_where_they_are_meant_to(
    spark: SparkSession,
    broker: shmq.Broker,
    flights: shmq.Queue,
    namespace: str,
    tmp_path: Path,
    where: str,
) -> None:
    flights.put("no map")
    end = (TO_QUEUE + BAD_TO_FILES) if where == "files" else (TO_QUEUE + BAD_TO_QUEUE)
    path = job(tmp_path, namespace, "late", DECODED.format(bad="route") + end)

    run_job(spark, "transform", path)

    assert len(bodies(broker, "late")) == 2
    assert flights.stats().depth == 0
    if where == "queue":
        with broker.queue("bad") as queue, queue.get() as message:
            assert message.body == "no map"
            assert message.headers == {"decode_problem": PROBLEM}
        return
    (row,) = rows_of(spark, tmp_path / "bad").collect()
    assert (bytes(row.value), row.topic) == (b"no map", "flights")
    assert row.decode_problem == PROBLEM


def test_a_bad_body_ends_the_job_and_the_message_is_still_there(
    spark: SparkSession, broker: shmq.Broker, flights: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    sequence = flights.put("no map").sequence
    path = job(tmp_path, namespace, "late", DECODED.format(bad="fail") + TO_QUEUE)

    with pytest.raises(ShmqError) as caught:
        run_job(spark, "transform", path)

    assert str(caught.value) == (
        f"the body of message {sequence} of queue flights: has the codec 'text', which has no "
        f"fields"
    )
    stats = flights.stats()
    assert stats.depth + stats.in_flight + stats.delayed == 4
    assert bodies(broker, "late") == []


def test_files_that_keep_coming_go_through_a_function_into_files(
    spark: SparkSession, namespace: str, tmp_path: Path
) -> None:
    source = tmp_path / "flights"
    text = JOB.format(namespace=namespace, app=APP, function="with_carrier", rest=TO_FILES).replace(
        f'[source.options]\nurl = "{namespace}"\nsubscribe = "flights"',
        '[source]\nformat = "parquet"\npath = "flights"',
    )
    path = written(tmp_path, text)

    for number in (1, 2):
        spark.createDataFrame([(f"C{number}", number)], "carrier STRING, delay INT").write.mode(
            "append"
        ).parquet(str(source))
        assert run_job(spark, "transform", path).rows == 1

    rows = rows_of(spark, tmp_path / "out").collect()
    assert sorted((row.carrier, row.delay) for row in rows) == [("C1", 1), ("C2", 2)]


@pytest.mark.parametrize(
    ("function", "kind", "told"),
    [
        ("nothing", InvalidOption, "returned a NoneType: it must return a DataFrame"),
        (
            "fails_to_parse",
            ShmqError,
            r"failed: ParseException: .*PARSE_SYNTAX_ERROR.* \(.*pipeline_app\.py",
        ),
        ("fails", ShmqError, r"failed: AnalysisException: .*no_such_column.* \(.*pipeline_app\.py"),
    ],
)
def test_what_a_function_does_wrong_is_said_with_its_name(
    spark: SparkSession,
    flights: shmq.Queue,
    namespace: str,
    tmp_path: Path,
    function: str,
    kind: type[Exception],
    told: str,
) -> None:
    path = job(tmp_path, namespace, function, TO_QUEUE)

    with pytest.raises(kind, match=f"function '{APP}:{function}' {told}"):
        run_job(spark, "transform", path)


def test_a_queue_that_is_not_there_is_said_as_what_it_is(
    spark: SparkSession, namespace: str, tmp_path: Path
) -> None:
    path = job(tmp_path, namespace, "as_it_is", TO_FILES.replace("partition_by", "# "))

    with pytest.raises(NoSuchQueue, match="flights"):
        run_job(spark, "transform", path)


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        (DECODED.format(bad="route") + TO_FILES, r"takes a table \[bad\]"),
        (DECODED.format(bad="drop") + TO_FILES + BAD_TO_FILES, 'takes bad = "route"'),
        (
            DECODED.format(bad="route") + TO_QUEUE + BAD_TO_QUEUE.replace('"bad"', '"late"'),
            "are the same place",
        ),
    ],
)
def test_a_place_for_bad_bodies_is_there_if_it_is_needed(
    spark: SparkSession, namespace: str, tmp_path: Path, rest: str, told: str
) -> None:
    with pytest.raises(InvalidOption, match=told):
        run_job(spark, "transform", job(tmp_path, namespace, "as_it_is", rest))
