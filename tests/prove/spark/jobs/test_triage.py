"""``triage``: every kind of dead letter, with an expression that means just that kind."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shmq
from tests.prove.spark.jobs.tools import run_job, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
[source.options]
url = "{namespace}"
subscribe = "jobs.dlq"
includeHeaders = true
[triage]
json = "triage.json"
parquet = "kinds"
{more}
"""


@pytest.fixture
def jobs(broker: shmq.Broker) -> shmq.Queue:
    return broker.create_queue("jobs", max_deliveries=2)


def bury(queue: shmq.Queue, body: Any, **properties: Any) -> None:
    queue.put(body, **properties)
    queue.get().reject()


def fill(queue: shmq.Queue) -> None:
    """Nine letters of five kinds."""
    for number in range(4):
        bury(queue, {"id": number, "item": "tea"}, codec="json", headers={"source": "web"})
    for number in range(2):
        bury(queue, {"id": f"it's {number}"})
    bury(queue, "GET /")
    queue.put("GET /")
    for _ in range(2):
        queue.get().nack(delay=0)
    bury(queue, b"\x1b[31m" + bytes(100))


def test_letters_are_grouped_by_reason_queue_codec_and_shape(
    spark: SparkSession,
    jobs: shmq.Queue,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(jobs)

    done = run_job(spark, "triage", written(tmp_path, FILE.format(namespace=namespace, more="")))

    assert (done.rows, dict(done.counts)) == (9, {"kinds": 5})
    told = json.loads((tmp_path / "triage.json").read_text())
    assert [row["row"] for row in told["rows"]] == [1, 2, 3, 4, 5]
    kinds = [
        (row["count"], row["reason"], row["codec"], row["shape"], row["deliveries"])
        for row in told["rows"]
    ]
    assert kinds[:2] == [
        (4, "rejected", "json", "{id: int, item: str}", 1),
        (2, "rejected", "msgpack", "{id: str}", 1),
    ]
    assert sorted(kinds[2:]) == [
        (1, "max_deliveries", "text", '4-15 B "GET "', 2),
        (1, "rejected", "bytes", "64-255 B 1b5b3331", 1),
        (1, "rejected", "text", '4-15 B "GET "', 1),
    ]
    first = told["rows"][0]
    assert first["first"] <= first["last"] <= told["triaged_at"]
    assert first["samples"] == [
        {
            "sequence": number,
            "body": json.dumps({"id": number - 1, "item": "tea"}),
            "headers": [{"key": "source", "value": "web"}],
        }
        for number in (1, 2, 3)
    ]
    assert stat.S_IMODE((tmp_path / "triage.json").stat().st_mode) == 0o600
    assert jobs.qsize() == 0
    table = capsys.readouterr().out
    assert "{id: int, item: str}" in table
    assert "\x1b" not in table
    kept = spark.read.parquet(str(tmp_path / "kinds")).orderBy("row").collect()
    assert [row["count"] for row in kept] == [4, 2, 1, 1, 1]
    assert kept[1]["where"] == told["rows"][1]["where"]


def test_the_expression_of_each_kind_redrives_that_kind_and_no_other(
    spark: SparkSession, broker: shmq.Broker, jobs: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    fill(jobs)
    run_job(spark, "triage", written(tmp_path, FILE.format(namespace=namespace, more="")))
    rows = json.loads((tmp_path / "triage.json").read_text())["rows"]
    bury(jobs, {"id": 99, "item": "late"}, codec="json")
    dead_letter_queues = broker.queue("jobs.dlq")

    for row in rows:
        assert dead_letter_queues.redrive(where=row["where"]) == row["count"]

    assert jobs.qsize() == 9
    assert [letter.body["id"] for letter in dead_letter_queues.peek()] == [99]


def test_the_largest_kinds_are_told_of_and_the_rest_is_said_to_be_there(
    spark: SparkSession,
    jobs: shmq.Queue,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(jobs)
    text = FILE.format(namespace=namespace, more="limit = 2\nsamples = 0")

    run_job(spark, "triage", written(tmp_path, text))

    rows = json.loads((tmp_path / "triage.json").read_text())["rows"]
    assert [(row["count"], row["samples"]) for row in rows] == [(4, []), (2, [])]
    assert "smaller kinds" in capsys.readouterr().out


def test_letters_are_grouped_by_error(
    spark: SparkSession,
    broker: shmq.Broker,
    jobs: shmq.Queue,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = shmq.Failure("Odd", "it's \x1b[31m\n" + "x" * 100)
    for error in (odd, KeyError("id"), odd, None):
        jobs.put("body")
        jobs.get().reject(error)

    run_job(spark, "triage", written(tmp_path, FILE.format(namespace=namespace, more="")))

    rows = json.loads((tmp_path / "triage.json").read_text())["rows"]
    assert (rows[0]["count"], rows[0]["error"]) == (2, str(odd))
    assert sorted((row["count"], str(row["error"])) for row in rows[1:]) == [
        (1, "KeyError: 'id'"),
        (1, "None"),
    ]
    assert "\x1b" not in capsys.readouterr().out
    letters = broker.queue("jobs.dlq")
    assert [letters.redrive(where=row["where"]) for row in rows] == [2, 1, 1]


def test_a_source_without_dead_letters_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    path = written(tmp_path, '[source]\nformat = "parquet"\npath = "numbers"\n')

    with pytest.raises(shmq.InvalidOption, match=r"triage needs the columns .*dead_reason"):
        run_job(spark, "triage", path)
