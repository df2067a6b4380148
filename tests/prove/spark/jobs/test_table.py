"""Tables of files: each batch once, for every reader, at every moment, through any death."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shmq
from shmq import DamagedFile
from shmq.api.query_pages import TABLE, key_of
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.table import BATCH, FileTable
from tests.prove.soak.spark.pipeline import Pipeline
from tests.prove.spark.jobs.readers import by_duckdb, read_by_all, watched
from tests.prove.spark.jobs.tools import current, run_job, written
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY = "0123-abcd"

Open = Callable[[], FileTable]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "some rows"


@pytest.fixture
def opened(spark: SparkSession, folder: Path) -> Open:
    """Opens the table, as each start of a job does."""
    return lambda: FileTable(spark, str(folder), "parquet", {})


def batch(spark: SparkSession, number: int) -> DataFrame:
    """Ten rows of which no other batch has any."""
    rows = spark.range(number * 10, number * 10 + 10, numPartitions=1)
    return rows.selectExpr("id as offset", "if(id % 2 = 0, 'a b', 'c:d') as half")


def add(table: FileTable, spark: SparkSession, number: int, query: str = QUERY) -> None:
    table.add(batch(spark, number), query, number, ["half"])


def test_a_batch_that_comes_again_adds_nothing(
    spark: SparkSession, folder: Path, opened: Open
) -> None:
    for table in (opened(), opened()):
        for number in (0, 1, 1, 0):
            add(table, spark, number)
    opened().add(batch(spark, 2), "another query", 0, ["half"])

    assert read_by_all(folder) == list(range(30))
    assert {path.name for path in current(folder).glob("shmq_batch=0*/*")} == {
        "half=a b",
        "half=c%3Ad",
    }


def test_a_table_without_a_batch_reads_as_empty(
    spark: SparkSession, folder: Path, opened: Open
) -> None:
    opened().add(batch(spark, 0).where("false"), QUERY, 0, ["half"])

    assert read_by_all(folder) == []
    assert spark.read.parquet(str(current(folder))).columns == ["offset", BATCH, "half"]
    assert list((folder / "_staging").iterdir()) == []

    add(opened(), spark, 1)
    assert read_by_all(folder) == list(range(10, 20))
    found = spark.read.parquet(str(current(folder))).orderBy("offset").collect()
    assert [row.half for row in found] == ["a b", "c:d"] * 5


@pytest.mark.parametrize("form", ["json", "csv", "orc", "text"])
def test_a_table_of_any_format_may_be_without_a_batch(
    spark: SparkSession, folder: Path, form: str
) -> None:
    rows = batch(spark, 0).selectExpr("cast(offset as string) as value", "half")
    for _ in range(2):
        FileTable(spark, str(folder), form, {}).add(rows.where("false"), QUERY, 0, ["half"])
    assert spark.read.format(form).schema("value string").load(str(current(folder))).count() == 0

    FileTable(spark, str(folder), form, {}).add(rows, QUERY, 0, ["half"])
    found = spark.read.format(form).schema("value string").load(str(current(folder)))
    assert found.count() == 10


def test_a_compaction_is_the_next_version_and_readers_of_the_old_one_go_on(
    spark: SparkSession, folder: Path, opened: Open
) -> None:
    table = opened()
    for number in range(3):
        add(table, spark, number)
    old = current(folder)
    reading = spark.read.parquet(str(old))

    assert table.compact(spark) == 30

    assert current(folder) != old
    assert len(list(current(folder).rglob("*.parquet"))) == 2
    assert reading.count() == 30
    add(opened(), spark, 2)
    add(opened(), spark, 3)
    assert read_by_all(folder) == list(range(40))
    assert table.compact(spark) == 40
    assert read_by_all(folder) == list(range(40))
    assert not old.exists()
    assert table.compact(spark) == 0


@pytest.mark.parametrize("made", [True, False], ids=["other-files", "nothing"])
def test_what_is_no_table_is_not_compacted_and_not_made_one(
    spark: SparkSession, tmp_path: Path, folder: Path, made: bool
) -> None:
    """Else a job that reads the folder would find an empty table instead of its files."""
    if made:
        batch(spark, 0).write.parquet(str(folder))
    before = sorted(folder.rglob("*"))
    config = f'[table]\npath = "{folder.name}"\n'
    with pytest.raises(shmq.ShmqError, match=r"some%20rows is not a table of a job, as it has no"):
        run_job(spark, "compact", written(tmp_path, config))

    assert folder.exists() == made
    assert sorted(folder.rglob("*")) == before


def test_the_slower_one_of_two_compactions_leaves_the_version_of_the_other(
    spark: SparkSession, folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        add(opened(), spark, number)
    real, slow = FileTable._read_rows, opened()

    def between(table: FileTable, *given: Any) -> Any:
        monkeypatch.undo()
        found = real(table, *given)
        opened().compact(spark)
        add(opened(), spark, 2)
        return found

    monkeypatch.setattr(FileTable, "_read_rows", between)
    with pytest.raises(shmq.ShmqError, match="compacted by another process in the meantime"):
        slow.compact(spark)

    assert not list((folder / "_staging").iterdir())
    assert read_by_all(folder) == list(range(30))


def test_two_compactions_that_both_become_current_lose_nothing(
    spark: SparkSession, folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        add(opened(), spark, number)
    real = Folder.write_json

    def between(self: Folder, name: str, value: object) -> None:
        monkeypatch.undo()
        opened().compact(spark)
        add(opened(), spark, 2)
        real(self, name, value)

    monkeypatch.setattr(Folder, "write_json", between)
    opened().compact(spark)
    assert read_by_all(folder) == list(range(30))

    opened().compact(spark)
    assert read_by_all(folder) == list(range(30))


def test_folders_by_other_columns_than_those_of_the_table_are_refused(
    spark: SparkSession, folder: Path, opened: Open
) -> None:
    """Spark and other readers refuse a folder that has both."""
    add(opened(), spark, 0)
    before = sorted(folder.rglob("*"))
    for columns in (["offset"], ["half", "offset"], []):
        with pytest.raises(shmq.InvalidOption, match=r"which has folders by \['half'\]: set part"):
            opened().add(batch(spark, 1), "another query", 0, columns)

    assert sorted(folder.rglob("*")) == before


def test_another_format_than_that_of_the_tables_files_is_refused(
    spark: SparkSession, folder: Path, opened: Open
) -> None:
    """Spark makes rows of JSON and of text of any bytes, which would replace those of the table."""
    for number in range(2):
        add(opened(), spark, number)
    before = sorted(folder.rglob("*"))
    for form in ("json", "text", "orc"):
        table = FileTable(spark, str(folder), form, {})
        told = rf"format='{form}' does not go with .* has files as part-.*\.parquet: set format"
        with pytest.raises(shmq.InvalidOption, match=told):
            table.compact(spark)
        with pytest.raises(shmq.InvalidOption, match=told):
            add(table, spark, 2, "another query")

    assert sorted(folder.rglob("*")) == before


def test_a_batch_for_a_version_that_is_gone_is_refused(
    spark: SparkSession, folder: Path, opened: Open
) -> None:
    """Spark would commit it, and its messages would be acknowledged."""
    table = opened()
    add(table, spark, 0)
    (folder / "v=0").rename(folder / "elsewhere")

    for each in (table, opened()):
        with pytest.raises(DamagedFile, match="it names v=0, which is not there"):
            add(each, spark, 1)
    with pytest.raises(DamagedFile, match="it names v=0, which is not there"):
        opened().compact(spark)


def test_a_batch_that_is_added_during_a_compaction_is_in_the_next_version(
    spark: SparkSession, folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after the new version is current, and by a writer that has seen the old one."""
    table = opened()
    for number in range(2):
        add(table, spark, number)
    real = Folder.write_json

    def between(self: Folder, name: str, value: object) -> None:
        monkeypatch.undo()
        add(opened(), spark, 2)  # the compaction has read the batches before
        late = opened()
        known = late.current()
        seen = iter([known, known])
        monkeypatch.setattr(late, "current", lambda: next(seen, None) or FileTable.current(late))
        real(self, name, value)
        add(late, spark, 3)

    monkeypatch.setattr(Folder, "write_json", between)
    table.compact(spark)

    assert read_by_all(folder) == list(range(40))


class Crash(Exception):
    """What a process does not survive."""


@pytest.mark.parametrize("switched", [False, True], ids=["before", "after"])
def test_a_compaction_that_is_killed_at_its_switch_hides_no_batch(
    spark: SparkSession, folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, switched: bool
) -> None:
    """Readers have found the batches that were added before the next version was current."""
    table = opened()
    for number in range(2):
        add(table, spark, number)
    real = Folder.write_json

    def killed(self: Folder, name: str, value: object) -> None:
        monkeypatch.undo()
        add(opened(), spark, 2)
        if switched:
            real(self, name, value)
        raise Crash

    monkeypatch.setattr(Folder, "write_json", killed)
    with pytest.raises(Crash):
        table.compact(spark)

    assert read_by_all(folder) == list(range(30))
    add(opened(), spark, 3)
    assert read_by_all(folder) == list(range(40))
    assert opened().compact(spark) == 40
    assert read_by_all(folder) == list(range(40))


@pytest.mark.parametrize("step", ["copy", "move"])
def test_a_batch_that_is_ready_when_a_version_is_made_is_added_to_that_version(
    spark: SparkSession, folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its writer found no newer version, or an older one, and is about to move or copy it."""
    for number in range(2):
        add(opened(), spark, number)
    if step == "copy":
        shutil.copytree(folder / "v=0", folder / "v=1")
    real = getattr(Folder, step)

    def slow(self: Folder, name: str, to: str, *more: object) -> object:
        if not name.endswith(".ready"):
            return real(self, name, to, *more)
        monkeypatch.undo()
        opened().compact(spark)
        return real(self, name, to, *more)

    monkeypatch.setattr(Folder, step, slow)
    add(opened(), spark, 2)

    assert read_by_all(folder) == list(range(30))
    assert list((folder / "_staging").iterdir()) == []


def test_readers_find_every_row_while_batches_are_added_and_versions_made(
    spark: SparkSession, folder: Path, opened: Open
) -> None:
    add(opened(), spark, 0)
    writer = opened()

    def add_all() -> None:
        for number in range(1, 30):
            add(writer, spark, number)

    with watched(folder) as watch, ThreadPoolExecutor(1) as pool:
        adding = pool.submit(add_all)
        while not adding.done():
            compacted = watch.reads
            opened().compact(spark)  # removes the version before the last one
            watch.until(compacted + 1)
        adding.result()

    assert watch.wrong == []
    assert read_by_all(folder) == list(range(300))


STEPS = ("write_json", "move", "remove")


def crashes() -> Iterator[tuple[str, int]]:
    for step in STEPS:
        yield from ((step, count) for count in range(2))


@pytest.mark.parametrize(("step", "count"), list(crashes()))
def test_a_crash_at_any_step_loses_and_doubles_nothing(
    spark: SparkSession,
    folder: Path,
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    count: int,
) -> None:
    table = opened()
    add(table, spark, 0)
    real = getattr(Folder, step)
    calls = iter(range(1_000))

    def fails(*arguments: object) -> object:
        if next(calls) == count:
            raise Crash
        return real(*arguments)

    monkeypatch.setattr(Folder, step, fails)
    try:
        add(table, spark, 1)
        table.compact(spark)
        add(table, spark, 2)
        table.compact(spark)
    except Crash:
        monkeypatch.undo()
    found = read_by_all(folder)
    assert found == list(range(len(found)))

    monkeypatch.undo()
    again = opened()
    for number in (1, 2):
        add(again, spark, number)
    again.compact(spark)

    assert read_by_all(folder) == list(range(30))
    assert list((folder / "_staging").iterdir()) == [], "what the crash left is gone"


def test_a_table_that_is_damaged_is_said_with_its_place(
    spark: SparkSession, folder: Path, opened: Open
) -> None:
    add(opened(), spark, 0)
    for text in (
        "",
        "{}",
        '{"path": "../x", "merged": {}}',
        '{"path": "v=1", "merged": {"q": "1"}}',
    ):
        (folder / "_current.json").write_text(text)
        with pytest.raises(DamagedFile, match=r"_current\.json is damaged at byte 0: it names no"):
            opened().current()


ARCHIVE = """
checkpoint = "checkpoint"
trigger = "0.1s"
[source.options]
subscribe = "in"
maxOffsetsPerTrigger = 1000
[sink]
path = "archive"
[spark]
master = "local[2]"
[spark.conf]
"spark.driver.memory" = "700m"
"spark.ui.enabled" = true
"spark.ui.port" = 0
"""

#: Of the job's query, by the public name of its host.
PAGE = r"http://spark\.example\.org:\d+/StreamingQuery/"

#: The exit code of a job whose Java was killed, and what it says.
KILLED = (
    r"1\nshmq: Java, in which Spark runs \(process \d+\), was killed by SIGKILL, as by a host that "
    r"has no memory left: start the job again: one with a checkpoint continues from it"
)

#: The messages between a start of the job and the next one: four batches.
TURN = 4000

COMPACT = """
[table]
path = "archive"
"""


@pytest.mark.watchdog(900)
def test_each_reader_finds_each_row_once_while_the_driver_is_killed_in_a_batch(
    spark: SparkSession,
    broker: shmq.Broker,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each driver tells its page, as one that is started for itself would need a JVM more."""
    monkeypatch.setenv("SPARK_PUBLIC_DNS", "spark.example.org")
    queue = broker.create_queue("in", capacity=1 << 16, arena_bytes=64 << 20, dead_letter=None)
    archive = tmp_path / "archive"
    config = tmp_path / "archive.toml"
    config.write_text(ARCHIVE)
    job = Pipeline(namespace, "archive", config)
    before, kept = set[str](), 0

    def batches() -> int:
        return len(list(archive.glob("v=*/shmq_batch=[!e]*")))

    def whole() -> bool:
        job.keep()
        return len(by_duckdb(archive)) >= 2 * TURN

    def in_a_batch() -> bool:
        job.keep()
        if batches() < kept + 2:  # some are there already, for the readers and the compaction
            return False
        with contextlib.suppress(FileNotFoundError):  # the batch has been moved meanwhile
            found = (archive / "_staging").rglob("*.parquet")
            return any(path.relative_to(archive).parts[1] not in before for path in found)
        return False

    try:
        with watched(archive) as watch:
            for turn in range(2):  # with a table of one version, and with the next one
                before = {path.name for path in (archive / "_staging").glob("*")}
                kept = batches()
                queue.put_many([b"%d" % turn * 100] * TURN)
                eventually(in_a_batch, "a batch is being written")
                if turn == 0:
                    job.kill_driver()
                    run_job(spark, "compact", written(tmp_path, COMPACT))
                else:
                    said = job.kill_java()
            eventually(whole, "all rows are there")
            job.stop()
    finally:
        job.close()

    assert watch.wrong == []
    assert watch.reads > 3
    assert re.fullmatch(KILLED, said)
    assert (queue.stats().depth, queue.stats().in_flight) == (0, 0), "all are acknowledged"
    found = read_by_all(archive)
    assert len(found) == len(set(found)) == 2 * TURN
    assert json.loads((archive / "_current.json").read_text())["path"] == "v=1"
    with broker.table(TABLE) as table:
        pages = [str(table.get(key)) for key in table.keys(key_of("queue", "in", ""))]
    assert pages, "a job tells the page of its session"
    assert all(re.fullmatch(PAGE, page) for page in pages), pages
