"""Parquet files of batches: each once, merged while they are read, whole after a crash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from shmq import DamagedFile, ShmqError
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.parquet_store import Compaction, ParquetStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY = "0123456789abcdef"
AT_ONCE = Compaction(files=2, keep=0)
NEVER = Compaction(size=0)

Open = Callable[..., ParquetStore]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "some rows")


@pytest.fixture
def opened(spark: SparkSession, path: str) -> Open:
    """Opens the store, as each start of a job does."""
    return lambda merging=NEVER: ParquetStore(spark, path, columns=("half",), merging=merging)


def batch(spark: SparkSession, number: int) -> DataFrame:
    """Ten rows of which no other batch has any."""
    rows = spark.range(number * 10, number * 10 + 10, numPartitions=1)
    return rows.selectExpr("id", "if(id % 2 = 0, 'a b', 'c:d') as half")


def ids(spark: SparkSession, path: str) -> list[int]:
    """What Spark reads, in order."""
    return sorted(row.id for row in spark.read.parquet(path).collect())


def on_disk(path: str) -> set[str]:
    """The files that there are, whether they count or not."""
    return {str(file.relative_to(path)) for file in Path(path).glob("half=*/*.parquet")}


def test_a_batch_that_comes_again_adds_nothing(
    spark: SparkSession, path: str, opened: Open
) -> None:
    store = opened()
    for number in (0, 1, 1, 0):
        store.add(batch(spark, number), QUERY, number)
    again = opened()
    again.add(batch(spark, 1), QUERY, 1)
    again.add(batch(spark, 2), "another query", 0)

    assert ids(spark, path) == list(range(30))
    assert {name.split("/")[0] for name in on_disk(path)} == {"half=a b", "half=c%3Ad"}


def test_a_batch_without_rows_leaves_nothing(spark: SparkSession, path: str, opened: Open) -> None:
    store = opened()
    store.add(batch(spark, 0).where("false"), QUERY, 0)
    store.add(batch(spark, 1), QUERY, 1)

    assert ids(spark, path) == list(range(10, 20))
    assert list(Path(path, "_writing").glob("*")) == []


def test_small_files_become_one_and_readers_see_each_row_once_at_any_time(
    spark: SparkSession, path: str, opened: Open
) -> None:
    store = opened(Compaction(files=2, keep=3600))
    for number in range(3):
        store.add(batch(spark, number), QUERY, number)
    before = spark.read.parquet(path)
    known = before.inputFiles()

    while store.merge():
        assert ids(spark, path) == list(range(30))
    store.sweep()

    assert len(spark.read.parquet(path).inputFiles()) == 2
    assert sorted(row.id for row in before.collect()) == list(range(30)), "files in hand are kept"
    assert len(on_disk(path)) == len(known) + 2

    opened(AT_ONCE).sweep()

    assert len(on_disk(path)) == 2
    assert ids(spark, path) == list(range(30))
    assert ds.dataset(path, partitioning="hive").count_rows() == 30


def test_files_that_have_other_columns_are_merged_with_all_of_them(
    spark: SparkSession, path: str
) -> None:
    store = ParquetStore(spark, path, merging=AT_ONCE)
    store.add(spark.sql("SELECT 1 AS one"), QUERY, 0)
    store.add(spark.sql("SELECT 2 AS two"), QUERY, 1)

    assert store.merge()

    rows = spark.read.parquet(path).collect()
    assert sorted((row.one, row.two) for row in rows if row.one) == [(1, None)]
    assert sorted((row.one, row.two) for row in rows if row.two) == [(None, 2)]


class Crash(Exception):
    """What a process does not survive."""


STEPS = ("create", "move", "remove")


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Lets the process end at the n-th call of a step, before or after the step is done."""

    def at(step: str, count: int) -> None:
        real = getattr(Folder, step)
        calls = iter(range(1_000))

        def fails(*arguments: object) -> object:
            call = next(calls)
            if call == count:
                raise Crash
            return real(*arguments)

        monkeypatch.setattr(Folder, step, fails)

    return at


def crashes(step: str) -> Iterator[tuple[str, int]]:
    yield from ((step, count) for count in range(3))


@pytest.mark.parametrize(("step", "count"), [each for step in STEPS for each in crashes(step)])
def test_a_crash_at_any_step_loses_and_doubles_nothing(
    spark: SparkSession,
    path: str,
    opened: Open,
    crash: Callable[[str, int], None],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    count: int,
) -> None:
    first = opened(AT_ONCE)
    first.add(batch(spark, 0), QUERY, 0)
    crash(step, count)
    with pytest.raises(Crash):
        first.add(batch(spark, 1), QUERY, 1)
        first.merge()
        first.merge()
        first.sweep()
        raise Crash
    monkeypatch.undo()
    if step != "remove":
        assert ids(spark, path) in (list(range(10)), list(range(20)))

    again = opened(AT_ONCE)
    again.add(batch(spark, 1), QUERY, 1)
    while again.merge():
        pass
    again.sweep()

    assert ids(spark, path) == list(range(20))
    assert len(on_disk(path)) == 2, "what the crash left is gone"


def test_another_process_that_writes_there_is_noticed(
    spark: SparkSession, path: str, opened: Open
) -> None:
    one, other = opened(), opened()
    one.add(batch(spark, 0), QUERY, 0)

    with pytest.raises(ShmqError, match="was written by another process: let one job alone"):
        other.add(batch(spark, 1), "another query", 0)

    opened()
    assert ids(spark, path) == list(range(10))
    assert len(on_disk(path)) == 2


def test_many_versions_are_read_as_they_were_written_and_old_ones_go(
    spark: SparkSession, path: str, opened: Open
) -> None:
    store = opened()
    rows = batch(spark, 0).coalesce(1)
    for number in range(45):
        store._file_sink_log.commit({}, batch=(QUERY, number))  # a version without files
    store.add(rows, QUERY, 45)

    found = opened()._file_sink_log

    assert found.files == store._file_sink_log.files
    assert found.batches == {QUERY: 45}
    assert ids(spark, path) == list(range(10))
    assert len(list(Path(path, "_spark_metadata").glob("[0-9]*"))) <= 40


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("v2\n", "byte 0: it begins with 'v2'"),
        ("v1\nnothing", "byte 3: no entry: "),
        ("v1\n{}", "byte 3: no entry: 'path'"),
        ('v1\n{"path": 7}', "byte 3: no entry: "),
    ],
)
def test_a_damaged_manifest_is_said_with_its_place(
    spark: SparkSession, path: str, opened: Open, text: str, told: str
) -> None:
    Folder(spark, path).create("_spark_metadata/0", text)

    with pytest.raises(DamagedFile, match=f"_spark_metadata/0 is damaged at {told}"):
        opened()


def test_a_manifest_without_one_of_its_versions_is_damaged(
    spark: SparkSession, path: str, opened: Open
) -> None:
    Folder(spark, path).create("_spark_metadata/1", "v1")

    with pytest.raises(DamagedFile, match="version 0 is not there"):
        opened()


def test_the_manifest_is_the_one_of_sparks_own_sink(
    spark: SparkSession, path: str, tmp_path: Path, opened: Open
) -> None:
    opened().add(batch(spark, 0), QUERY, 0)
    source, own = tmp_path / "source", tmp_path / "own"
    batch(spark, 0).write.parquet(str(source))
    stream = spark.readStream.schema("id LONG, half STRING").parquet(str(source)).writeStream
    stream.format("parquet").option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start(str(own)).awaitTermination()

    ours, theirs = (
        [json.loads(line) for line in Path(at, "_spark_metadata", "0").read_text().splitlines()[1:]]
        for at in (path, own)
    )

    assert {tuple(line) for line in ours} == {tuple(line) for line in theirs}
    assert {type(value) for line in ours for value in line.values()} == {
        type(value) for line in theirs for value in line.values()
    }
