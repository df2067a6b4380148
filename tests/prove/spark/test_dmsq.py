"""``spark.read.format("dmsq")``: what the files of queues hold."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import shmq
from shmq.disk.storage.paths import segment_name, snapshot_name
from shmq.spark.dmsq.options import OPTIONS
from shmq.spark.jobs.failure import failure_of
from shmq.spark.shared import columns
from tests.support.queue_files import HASH_KEY, WALL, Building, put, settle, update
from tests.support.writer_process import running_writer

PUSH = "spark.sql.python.filterPushdown.enabled"
SECOND = 10**9


def read(spark: SparkSession, path: Path, **given: Any) -> DataFrame:
    """All columns, unless the test names some."""
    return spark.read.format("dmsq").options(**{"columns": "all", **given}).load(str(path))


def rows(frame: DataFrame) -> list[Row]:
    return frame.orderBy("topic", "offset").collect()


def offsets(frame: DataFrame) -> list[int]:
    return [row.offset for row in rows(frame)]


def write(folder: Path, name: str, made: Building) -> Path:
    path = folder / name
    path.write_bytes(bytes(made))
    return path


def at(second: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(WALL / SECOND + second, dt.UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A snapshot with 1 to 3, and a segment in which 1 is settled and 4 to 100 are put."""
    made = Building.snapshot(2).batch(*[put(seq, b"%d" % seq) for seq in (1, 2, 3)]).close()
    write(tmp_path, snapshot_name("q"), made)
    puts = [put(seq, b"%d" % seq, put_at=WALL + seq * SECOND) for seq in range(4, 101)]
    write(tmp_path, segment_name("q", 2), Building(number=2).batch(*puts).batch(settle(1)))
    return tmp_path


@pytest.fixture
def damaged(folder: Path) -> Path:
    """The same with a second queue, of whose two batches the first one is damaged."""
    made = Building(name="z", hash_key=HASH_KEY + 1).batch(put(1)).batch(put(2)).close()
    data = bytearray(bytes(made))
    data[made.start + 70] ^= 1
    path = folder / segment_name("z", 1)
    path.write_bytes(data)
    return path


def failing(frame: DataFrame) -> shmq.ShmqError:
    with pytest.raises(Exception) as found:  # noqa: PT011 - Spark's own, with ours in it
        frame.collect()
    error = failure_of(found.value)
    assert isinstance(error, shmq.ShmqError)
    return error


def test_what_is_live_is_read_in_the_columns_of_a_queue(spark: SparkSession, folder: Path) -> None:
    found = rows(read(spark, folder, includeHeaders="true"))

    assert [(row.offset, row.value) for row in found] == [(n, b"%d" % n) for n in range(2, 101)]
    assert {**found[2].asDict(), "timestamp": None} == {
        **dict.fromkeys(columns.NAMES),
        "value": b"4",
        "topic": "q",
        "partition": 0,
        "offset": 4,
        "timestampType": 0,
        "priority": 0,
        "delivery_count": 0,
        "state": "ready",
        "codec": "bytes",
    }
    assert found[2].timestamp.astimezone(dt.UTC) == at(4)


def test_what_has_become_of_a_message_is_in_its_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = Building().batch(put(1), put(2), put(3, expires=WALL + 9 * SECOND))
    made.batch(update(1, deliveries=2, until=WALL + SECOND))
    made.batch(update(2, deliveries=3, reason=2, dead_at=WALL + 2 * SECOND))
    write(tmp_path, segment_name("q", 1), made)

    one, two, three = rows(read(spark, tmp_path))

    assert (one.state, one.delivery_count) == ("delayed", 2)
    assert one.visible_at.astimezone(dt.UTC) == at(1)
    assert (two.state, two.dead_reason) == ("dying", "max_deliveries")
    assert two.dead_at.astimezone(dt.UTC) == at(2)
    assert (three.state, three.expires_at.astimezone(dt.UTC)) == ("ready", at(9))
    assert offsets(read(spark, tmp_path, states="dying,ready")) == [2, 3]


def test_the_files_of_a_queue_in_use_are_read(spark: SparkSession, broker: shmq.Broker) -> None:
    queue = broker.create_queue("orders", durability="journal")
    with running_writer(broker.namespace) as writer_process:
        sent = [b"%d" % n for n in range(500)]
        queue.put_many(sent, headers={"from": "here"}, confirm="disk")
        for _ in range(100):
            queue.get().ack()

        wanted = "topic,offset,value,headers"
        found = rows(read(spark, writer_process.folder, queue="orders", columns=wanted))

    assert {row.value for row in found} >= set(sent[100:])
    assert found[-1].headers == [Row(key="from", value=b"here")]


def test_a_read_is_cut_into_as_many_slices_as_asked_for(spark: SparkSession, folder: Path) -> None:
    frame = read(spark, folder, minPartitions="4", maxBytesPerBatch="1k")

    assert frame.rdd.getNumPartitions() == 4
    assert offsets(frame) == list(range(2, 101))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingSequence": "90"}, range(90, 101)),
        ({"endingSequence": "5"}, range(2, 5)),
        ({"startingTimestamp": str(WALL // 10**6 + 90_000)}, range(90, 101)),
        ({"endingTimestamp": at(10).isoformat()}, range(2, 10)),
        ({"startingSequence": "101"}, range(0)),
        ({"queuePattern": "[a-p]"}, range(0)),
        ({"queuePattern": "q+", "endingSequence": "3"}, range(2, 3)),
    ],
)
def test_options_limit_what_is_read(
    spark: SparkSession, folder: Path, given: dict[str, str], expected: range
) -> None:
    assert offsets(read(spark, folder, **given)) == list(expected)


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_have_the_same_rows_whether_they_are_pushed_or_not(
    spark: SparkSession, folder: Path, pushed: str
) -> None:
    before = str(spark.conf.get(PUSH))
    spark.conf.set(PUSH, pushed)
    try:
        frame = read(spark, folder).where(
            f"offset > 10 and timestamp < timestamp'{at(20).isoformat()}' and topic = 'q' "
            "and offset != 15 and cast(value as string) like '1%'"
        )
        assert offsets(frame) == [11, 12, 13, 14, 16, 17, 18, 19]
        plan = frame._jdf.queryExecution().executedPlan().toString()
        scan = next(line for line in plan.splitlines() if "Filter" in line)
        assert ("topic" in scan.split("Filter", 1)[1]) == (pushed == "false")
    finally:
        spark.conf.set(PUSH, before)


def test_a_message_between_two_queues_is_where_it_was_going(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, segment_name("from", 1), Building(name="from").batch(put(1), put(2)))
    moved = put(1, origin_queue=HASH_KEY, origin_seq=2)
    made = Building(name="to", hash_key=HASH_KEY + 1).batch(moved)
    write(tmp_path, segment_name("to", 1), made)

    found = rows(read(spark, tmp_path))
    assert [(row.topic, row.offset) for row in found] == [("from", 1), ("to", 1)]
    assert offsets(read(spark, tmp_path).where("topic = 'from'")) == [1]


def test_damage_fails_the_read_with_file_and_offset(spark: SparkSession, damaged: Path) -> None:
    error = failing(read(spark, damaged.parent))

    assert isinstance(error, shmq.DamagedFile)
    assert str(error).startswith(f"{damaged} is damaged at byte ")
    assert "mode=DROPMALFORMED" in str(error)


def test_damage_is_passed_over_and_counted_on_demand(spark: SparkSession, damaged: Path) -> None:
    frame = read(spark, damaged.parent, queue="z", mode="dropmalformed")
    assert offsets(frame) == [2]

    (skipped,) = read(spark, damaged.parent, mode="DROPMALFORMED", rows="skipped").collect()
    assert (skipped.topic, skipped.file) == ("z", str(damaged))
    assert skipped.bytes > 0
    assert 0 < skipped.offset < damaged.stat().st_size
    assert skipped.what


def test_a_queue_of_which_nothing_can_be_read_is_counted(spark: SparkSession, folder: Path) -> None:
    path = folder / segment_name("z", 1)
    path.write_bytes(bytes(4096))
    path.with_name(segment_name("z", 2)).write_bytes(b"DMSQ" + bytes(4096))

    assert len(offsets(read(spark, folder, mode="DROPMALFORMED"))) == 99
    skipped = read(spark, folder, mode="DROPMALFORMED", rows="skipped").collect()
    assert {row.topic for row in skipped} == {"z"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queu": "q"}, "did you mean 'queue'"),
        ({"mode": "PERMISSIVE"}, "must be one of FAILFAST, DROPMALFORMED"),
        ({"states": "leased"}, "must be some of ready, delayed, dying"),
        ({"startingTimestamp": "noon"}, "must be ms since 1970"),
        ({"subscribe": "q"}, r"option\('queue', NAMES\)"),
        ({"queue": "p"}, "no files of queue 'p'"),
    ],
)
def test_wrong_options_are_told_in_one_error(
    spark: SparkSession, folder: Path, given: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        read(spark, folder, **given).collect()


def test_a_path_that_is_no_directory_of_files_is_told(spark: SparkSession, folder: Path) -> None:
    empty = folder / "empty"
    empty.mkdir()
    for path, said in (
        (folder / "none", "is not a directory"),
        (folder / snapshot_name("q"), f"load '{folder}'"),
        (empty, "no files of queues"),
    ):
        assert said in str(failing(read(spark, path)))
    assert "say which directory" in str(failing_load(spark))
    assert len(offsets(spark.read.format("dmsq").load(folder.as_uri()))) == 99


def failing_load(spark: SparkSession) -> Exception:
    with pytest.raises(Exception) as found:  # noqa: PT011 - Spark's own, with ours in it
        spark.read.format("dmsq").load().collect()
    return failure_of(found.value)


def test_every_option_is_in_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs/integrate/spark.md").read_text()
    section = page.partition('format("dmsq")')[2]
    assert section, 'docs/integrate/spark.md has no section on format("dmsq")'
    assert [option.name for option in OPTIONS if f"`{option.name}`" not in section] == []
