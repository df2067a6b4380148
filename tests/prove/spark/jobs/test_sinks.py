"""Sinks of a job: any format of Spark's, with its options, and each batch once where it can be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

import shmq
from shmq import InvalidOption, ShmqError
from shmq.spark.jobs import catalog
from tests.prove.spark.jobs.tools import current, rows_of, run_job, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSFORM = """
checkpoint = "{checkpoint}"
trigger = "available-now"
[source.options]
url = "{namespace}"
subscribe = "in"
[transform]
function = "tests.prove.spark.jobs.pipeline_app:text"
{sink}
"""

FILES = '[sink]\nformat = "{format}"\npath = "out"\npartition_by = "half"\n{options}'


@pytest.fixture
def queue(broker: shmq.Broker) -> shmq.Queue:
    made = broker.create_queue("in", dead_letter=None)
    made.put_many(["one", "two", "three"])
    return made


def job(folder: Path, namespace: str, sink: str, checkpoint: str = "checkpoint") -> Path:
    text = TRANSFORM.format(checkpoint=checkpoint, namespace=namespace, sink=sink)
    return written(folder, text)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("parquet", '[sink.options]\ncompression = "zstd"'),
        ("orc", ""),
        ("json", ""),
        ("csv", "[sink.options]\nheader = true"),
    ],
)
def test_files_of_any_format_are_compacted_and_have_each_row_once(
    spark: SparkSession, queue: shmq.Queue, namespace: str, tmp_path: Path, form: str, options: str
) -> None:
    queue.put_many(["four", "five"])
    path = job(tmp_path, namespace, FILES.format(format=form, options=options))
    path.write_text(path.read_text().replace("subscribe", "maxOffsetsPerTrigger = 3\nsubscribe"))
    run_job(spark, "transform", path)
    batches = list(current(tmp_path / "out").glob("shmq_batch=0*"))
    assert len(batches) == 2, "there are batches to merge"
    extra = options.replace("sink.", "table.")
    compact = f'[table]\nformat = "{form}"\npath = "out"\n{extra}'

    assert run_job(spark, "compact", written(tmp_path, compact)).rows == 5

    read = spark.read.format(form).options(header="true").load(str(current(tmp_path / "out")))
    assert sorted(row.text for row in read.collect()) == ["five", "four", "one", "three", "two"]
    assert {path.name for path in current(tmp_path / "out").iterdir()} == {"shmq_batch=merged"}


def test_a_database_takes_rows_by_jdbc(
    spark: SparkSession, queue: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    url = f"jdbc:derby:{tmp_path}/base;create=true"
    sink = f'[sink]\nformat = "jdbc"\n[sink.options]\nurl = "{url}"\ndbtable = "texts"\n'
    driver = 'driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"\n'
    run_job(spark, "transform", job(tmp_path, namespace, sink + driver))

    found = spark.read.format("jdbc").options(url=url, dbtable="texts").load().collect()
    assert sorted(row.TEXT if "TEXT" in row else row.text for row in found) == [
        "one",
        "three",
        "two",
    ]


class Recorder(DataSourceWriter):
    """Adds a line with its options to a file, once for each write."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with Path(self._options["path"]).open("a") as file:
            file.write(json.dumps(self._options) + "\n")


class Delta(DataSource):
    """Stands where the format delta would, which takes a jar."""

    @classmethod
    def name(cls) -> str:
        return "delta"

    def writer(self, schema: object, overwrite: bool) -> Recorder:
        return Recorder(dict(self.options))


def test_delta_is_told_the_query_and_the_batch_to_take_it_once(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    spark.dataSource.register(Delta)
    source = broker.create_stream("in", 1, ring_bytes=1 << 16)
    path = job(tmp_path, namespace, '[sink]\nformat = "delta"\npath = "log"\n')
    path.write_text(
        path.read_text().replace("subscribe", 'startingOffsets = "earliest"\nsubscribe')
    )
    for number in range(2):
        source.append(b"%d" % number)
        run_job(spark, "transform", path)
    for file in (tmp_path / "checkpoint/commits").glob("*1*"):  # as if it had been killed before
        file.unlink()
    run_job(spark, "transform", path)

    told = [_lower(json.loads(line)) for line in (tmp_path / "log").read_text().splitlines()]
    query = json.loads((tmp_path / "checkpoint/metadata").read_text())["id"]
    assert [each["txnversion"] for each in told] == ["0", "1", "1"]
    assert {each["txnappid"] for each in told} == {f"{query}/rows"}


def _lower(options: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def test_an_archive_is_replayed_into_files_and_into_another_format(
    spark: SparkSession, queue: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    archive = f"""
    checkpoint = "archived"
    trigger = "available-now"
    [source.options]
    url = "{namespace}"
    subscribe = "in"
    [sink]
    path = "archive"
    """
    run_job(spark, "archive", written(tmp_path, archive))
    for form, sink in (("parquet", 'path = "again"'), ("noop", "")):
        replay = f"""
        checkpoint = "{form}"
        [source]
        format = "parquet"
        path = "archive"
        [select]
        where = "offset > 1"
        [sink]
        format = "{form}"
        {sink}
        """
        assert run_job(spark, "replay", written(tmp_path, replay)).rows == 2

    with duckdb.connect() as connection:
        query = f"SELECT value FROM read_parquet('{current(tmp_path / 'again')}/**/*.parquet')"
        assert sorted(connection.execute(query).fetchall()) == [(b"three",), (b"two",)]
    assert rows_of(spark, tmp_path / "again").count() == 2


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        (
            '[sink]\nformat = "parquet"',
            "[sink]: 'path' is missing: the folder of the files in parq",
        ),
        ('[sink]\nformat = "csv"\npath = "s3a://b/x"', "renames a folder at once"),
        ('[sink]\nformat = "orc"\npath = "x"\nmode = "overwrite"', 'take mode = "append"'),
        ('[sink]\nmode = "ignore"', "mode = 'ignore' in [sink] must be one of append, overwrite"),
    ],
)
def test_a_sink_that_cannot_work_is_refused_before_spark_starts(
    tmp_path: Path, sink: str, told: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        catalog.load("transform").read(job(tmp_path, "n", sink))
    assert told in str(caught.value)


def test_a_format_that_spark_does_not_have_is_one_line(
    spark: SparkSession, queue: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    path = job(tmp_path, namespace, '[sink]\nformat = "iceberg"\npath = "a.b"\n')

    with pytest.raises(ShmqError) as caught:
        run_job(spark, "transform", path)

    assert "iceberg" in str(caught.value)
    assert "\n" not in str(caught.value)
    stats = queue.stats()
    assert stats.depth + stats.in_flight == 3
