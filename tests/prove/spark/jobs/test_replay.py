"""``replay``: what is in files is in the queue, in order, and once."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import shmq
from shmq.disk.storage.paths import segment_name
from shmq.spark.jobs import catalog
from shmq.spark.jobs.runner import run
from tests.prove.spark.jobs.tools import run_job, written
from tests.support.queue_files import WALL, Building, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shmq.spark.jobs.job import Progress

SECOND = 10**9

FILES = """
checkpoint = "checkpoint"
{top}
[source]
path = "files"
[select]
{select}
[sink.options]
url = "{namespace}"
topic = "again"
"""


BACKWARDS = """
checkpoint = "checkpoint"
[source]
path = "files"
[select]
since = 2026-02-01
until = 2026-01-01
[sink]
"""


@pytest.fixture
def again(broker: shmq.Broker) -> shmq.Queue:
    return broker.create_queue("again", capacity=4096, dead_letter=None)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Messages 1 to 1000, a second apart, in batches that are not in order of their times."""
    folder = tmp_path / "files"
    folder.mkdir()
    made = Building(options={"capacity": 4096})
    for first in range(1, 1001, 100):
        made.batch(
            *[put(n, b"%d" % n, put_at=WALL + n * SECOND) for n in range(first, first + 100)]
        )
    (folder / segment_name("q", 1)).write_bytes(bytes(made.close()))
    return folder


def job(folder: Path, namespace: str, top: str = "", select: str = "") -> Path:
    return written(folder, FILES.format(namespace=namespace, top=top, select=select))


def bodies(queue: shmq.Queue) -> list[int]:
    return [int(message.view) for message in queue.peek(limit=4096)]


def moment(second: int) -> str:
    return dt.datetime.fromtimestamp(WALL / SECOND + second, dt.UTC).isoformat()


def test_files_are_put_into_the_queue_in_order_and_once(
    spark: SparkSession, broker: shmq.Broker, files: Path, again: shmq.Queue
) -> None:
    path = job(files.parent, broker.namespace)

    done = run_job(spark, "replay", path)
    assert (done.rows, done.backlog) == (1000, 0)
    assert bodies(again) == list(range(1, 1001))

    assert run_job(spark, "replay", path).rows == 0
    assert again.qsize() == 1000
    assert [queue.name for queue in broker.list_queues()] == ["again"]
    assert not (files.parent / "checkpoint/rows").exists()


def test_a_time_range_and_a_filter_choose_the_messages(
    spark: SparkSession, broker: shmq.Broker, files: Path, again: shmq.Queue
) -> None:
    select = f'since = "{moment(100)}"\nuntil = "{moment(200)}"\nwhere = "offset % 2 = 0"'

    run_job(spark, "replay", job(files.parent, broker.namespace, select=select))

    assert bodies(again) == list(range(100, 200, 2))


def test_a_replay_that_was_stopped_goes_on_without_duplicates(
    spark: SparkSession, broker: shmq.Broker, files: Path, again: shmq.Queue
) -> None:
    path = job(files.parent, broker.namespace, top='rate = 1000\nevery = "100ms"')
    replay = catalog.load("replay")
    config = replay.read(path)
    told: list[Progress] = []

    run(replay, config, spark, told.append, lambda: bool(told) and told[-1].rows >= 200)
    assert told[-1].rows == 200
    assert told[-1].backlog == 800
    assert bodies(again) == list(range(1, 201))

    # As if it had been killed between a batch and the note of it.
    (files.parent / "checkpoint/done.json").write_text("1")
    # What has become of the files meanwhile is of no account.
    (files / segment_name("q", 1)).unlink()
    run_job(spark, "replay", path)
    assert bodies(again) == list(range(1, 1001))


def test_a_replay_that_could_not_choose_its_rows_may_be_corrected(
    spark: SparkSession, broker: shmq.Broker, files: Path, again: shmq.Queue
) -> None:
    for where, cause in (
        ("offzet < 3", "`offzet` cannot be resolved"),
        ("offset <", "PARSE_SYNTA"),
    ):
        wrong = job(files.parent, broker.namespace, select=f'where = "{where}"')
        with pytest.raises(
            shmq.InvalidOption, match=rf"where = '{where}' in \[select\]: .*{cause}"
        ):
            run_job(spark, "replay", wrong)
        replay = catalog.load("replay")
        with pytest.raises(shmq.InvalidOption, match=rf"where = '{where}' .*{cause}"):
            replay.read(wrong).check_sql(spark)
    run_job(spark, "replay", job(files.parent, broker.namespace, select='where = "offset < 3"'))
    assert bodies(again) == [1, 2]


def test_a_damaged_checkpoint_is_said_with_its_file(
    spark: SparkSession, broker: shmq.Broker, files: Path, again: shmq.Queue
) -> None:
    path = job(files.parent, broker.namespace)
    run_job(spark, "replay", path)
    for name, text in (("portions", ""), ("done", "-1"), ("done", "{}"), ("done", "\xff")):
        file = files.parent / f"checkpoint/{name}.json"
        before = file.read_bytes()
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(
            shmq.DamagedFile, match=rf"checkpoint/{name}\.json is damaged at byte 0"
        ):
            run_job(spark, "replay", path)
        file.write_bytes(before)
    assert again.qsize() == 1000


def test_a_checkpoint_of_another_replay_is_refused(
    spark: SparkSession, broker: shmq.Broker, files: Path, again: shmq.Queue
) -> None:
    run_job(spark, "replay", job(files.parent, broker.namespace, select='where = "offset < 3"'))
    with pytest.raises(shmq.InvalidOption, match=r"is of another replay: where was 'offset < 3'"):
        run_job(spark, "replay", job(files.parent, broker.namespace))


def test_parquet_goes_to_the_queues_that_its_rows_name(
    spark: SparkSession, broker: shmq.Broker, tmp_path: Path
) -> None:
    queues = [broker.create_queue(name, dead_letter=None) for name in ("one", "two")]
    made = spark.range(10).selectExpr(
        "id AS ignored",
        "cast(cast(id as string) as binary) AS value",
        "if(id % 2 = 0, 'one', 'two') AS topic",
        "timestamp_seconds(100 - id) AS timestamp",
    )
    made.write.parquet(str(tmp_path / "rows"))
    path = written(
        tmp_path,
        f"""
        checkpoint = "checkpoint"
        [source]
        format = "parquet"
        path = "rows"
        [sink.options]
        url = "{broker.namespace}"
        """,
    )

    assert run_job(spark, "replay", path).rows == 10
    assert [bodies(queue) for queue in queues] == [[8, 6, 4, 2, 0], [9, 7, 5, 3, 1]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('checkpoint = "c"\n[source]\n[sink]', "'path' is missing in [source]"),
        ('[source]\npath = "files"\n[sink]', "'checkpoint' is missing"),
        (BACKWARDS, "must be before until"),
        (
            'checkpoint = "c"\n[source]\npath = "files"\n[sink.options]\ntopic = "q"\nbatch = 1',
            "'batch' in [sink.options] is what replay sets",
        ),
        (
            'checkpoint = "c"\nrate = 0\n[source]\npath = "files"\n[sink]',
            "rate = 0 must be a number >= 0.001",
        ),
        (
            'checkpoint = "c"\n[source]\npath = "files"\n[source.options]\nqueu = "q"\n[sink]',
            "did you mean 'queue'",
        ),
    ],
)
def test_a_file_that_is_wrong_is_told(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(shmq.InvalidOption) as found:
        catalog.load("replay").read(path)
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ('where = "ofset > 1"', "where = 'ofset > 1' in [select]: "),
        ('where = "value >"', "where = 'value >' in [select]: "),
    ],
)
def test_a_condition_that_makes_no_sense_is_told(
    spark: SparkSession, broker: shmq.Broker, files: Path, select: str, said: str
) -> None:
    with pytest.raises(shmq.InvalidOption) as found:
        run_job(spark, "replay", job(files.parent, broker.namespace, select=select))
    assert said in str(found.value)


def test_the_progress_says_which_queue_is_full_and_of_what(
    spark: SparkSession, broker: shmq.Broker, files: Path
) -> None:
    """Not its messages, of which it may hold more, but the bytes of its arena."""
    small = broker.create_queue("again", capacity=4096, arena_bytes=32 << 10, dead_letter=None)
    found: list[str] = []
    taken: list[int] = []

    def report(progress: Progress) -> None:
        found.append(progress.waiting)
        while progress.waiting and len(taken) < 1000:
            for message in small.consume(timeout=1):
                taken.append(int(message.body))
                message.ack()

    replay = catalog.load("replay")
    config = replay.read(job(files.parent, broker.namespace))
    assert run(replay, config, spark, report, lambda: False).rows == 1000

    assert taken == list(range(1, 1001))
    waiting = next(filter(None, found))
    assert waiting.startswith("queue 'again' has no room in its arena: ")
    assert " of 32,768 bytes" in waiting
