"""Batch after batch of a streaming read, asked for as Spark does, without Spark."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

import shmq
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared.kind import Kind
from shmq.spark.source import ShmqSource
from shmq.spark.stream.kind import STREAM_KIND
from shmq.spark.stream.reader import Range

SCHEMA = StructType([StructField("value", BinaryType(), nullable=False)])
KINDS = pytest.mark.parametrize("kind", [QUEUE, STREAM_KIND], ids=lambda kind: str(kind.name))


@dataclasses.dataclass
class Query:
    """A query on one checkpoint: each start continues from the last offset."""

    broker: shmq.Broker
    kind: Kind[Any]
    given: dict[str, str]
    offset: Any = None
    now: bool = False

    def __post_init__(self) -> None:
        self.reader: Any = None
        self.restart()

    def restart(self, **options: str) -> None:
        """Another process continues."""
        self.stop()
        self.given.update(options)
        given = {"url": self.broker.namespace, **self.given}
        self.reader = self.kind.stream_reader(given, SCHEMA)
        if self.now:
            self.reader.prepareForTriggerAvailableNow()

    def batch(self, limit: Any = None) -> list[Any]:
        """The parts of the next batch; none if Spark would wait."""
        begin = self.offset or self.reader.initialOffset()
        end = self.reader.latestOffset(begin, limit or self.reader.getDefaultReadLimit())
        if end == self.offset:
            return []
        self.offset = json.loads(json.dumps(end))
        return list(self.reader.partitions(begin, self.offset))

    def counts(self, limit: Any = None) -> Counter[Any]:
        """The number of rows of the next batch in each queue or partition."""
        found: Counter[Any] = Counter()
        for part in self.batch(limit):
            if isinstance(part, Range):
                found[part.topic, part.partition] += len(part)
            else:
                found[part.topic] += len(part.sequences) // 8
        return found

    def stop(self) -> None:
        """End the process."""
        if self.reader is not None:
            self.reader.stop()


Start = Callable[..., Query]


@pytest.fixture
def start(broker: shmq.Broker) -> Iterator[Start]:
    """Starts a query of ``orders.*``."""
    started: list[Query] = []

    def make(kind: Kind[Any], *, now: bool = False, **options: str) -> Query:
        given = {"subscribePattern": r"orders\..*", **options}
        if kind is STREAM_KIND:
            given.setdefault("startingOffsets", "earliest")
        started.append(Query(broker, kind, given, now=now))
        return started[-1]

    yield make
    for query in started:
        query.stop()


def fill(broker: shmq.Broker, kind: Kind[Any], counts: list[int]) -> None:
    """Queues, or streams of two partitions each, in which so many rows wait."""
    bodies = [[b"x"] * count for count in counts]
    if kind is QUEUE:
        for number, each in enumerate(bodies):
            broker.create_queue(f"orders.{number}").put_many(each)
        return
    for number in range(0, len(counts), 2):
        stream = broker.create_stream(f"orders.{number}", 2)
        for partition, each in enumerate(bodies[number : number + 2]):
            if each:
                stream.append_many(each, partition=partition)


def in_order(kind: Kind[Any], found: Counter[Any], places: int) -> list[int]:
    """The counts of a batch in the order in which `fill` was given them."""
    if kind is QUEUE:
        return [found[f"orders.{number}"] for number in range(places)]
    return [found[f"orders.{number - number % 2}", number % 2] for number in range(places)]


# ---- how much of each ----


@KINDS
@pytest.mark.parametrize(("limit", "rows"), [(200, [191, *[1] * 9]), (10, [1] * 10)])
def test_a_hot_one_leaves_each_other_one_a_row_of_the_batch(
    broker: shmq.Broker, start: Start, kind: Kind[Any], limit: int, rows: list[int]
) -> None:
    fill(broker, kind, [5000, *[5] * 9])
    query = start(kind, maxOffsetsPerTrigger=str(limit))
    assert in_order(kind, query.counts(), 10) == rows


@KINDS
@pytest.mark.parametrize("restarted", [False, True])
def test_with_fewer_rows_than_places_each_has_its_turn_also_after_a_restart(
    broker: shmq.Broker, start: Start, kind: Kind[Any], restarted: bool
) -> None:
    fill(broker, kind, [500, *[5] * 9])
    query = start(kind, maxOffsetsPerTrigger="3")
    total: Counter[Any] = Counter()
    for _ in range(10):
        found = query.counts()
        assert sum(found.values()) == 3
        total += found
        if restarted:
            query.restart()
    assert in_order(kind, total, 10) == [3] * 10


@KINDS
def test_available_now_reads_what_was_there_in_batches_within_the_limit(
    broker: shmq.Broker, start: Start, kind: Kind[Any]
) -> None:
    fill(broker, kind, [20, *[1] * 9])
    query = start(kind, now=True, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    total = first = query.counts()
    if kind is QUEUE:
        broker.queue("orders.1").put_many([b"x"] * 30)
    else:
        broker.stream("orders.0").append_many([b"x"] * 30, partition=1)
    while found := query.counts():
        assert sum(found.values()) <= 5
        total = total + found
    assert sum(first.values()) == 5
    assert in_order(kind, total, 10) == [20, *[1] * 9]


def test_messages_that_cannot_be_leased_leave_their_share_to_other_queues(
    broker: shmq.Broker, start: Start
) -> None:
    fill(broker, QUEUE, [5, 5])
    query = start(QUEUE, maxOffsetsPerTrigger="1")
    take = query.reader._handles.take
    query.reader._handles.take = lambda name, *given: (
        None if name == "orders.0" else take(name, *given)
    )
    assert in_order(QUEUE, query.counts(), 2) == [0, 1]


# ---- when ----


@KINDS
def test_a_minimum_counts_all_that_waits_and_not_what_a_batch_may_have(
    broker: shmq.Broker, start: Start, kind: Kind[Any]
) -> None:
    fill(broker, kind, [100, 100, 100, 0])
    query = start(kind, maxOffsetsPerTrigger="50", minOffsetsPerTrigger="50")
    assert [sum(query.counts().values()) for _ in range(7)] == [50] * 6 + [0]


@KINDS
@pytest.mark.parametrize("options", [{"maxOffsetsPerTrigger": "50"}, {}], ids=["maximum", "none"])
def test_a_run_of_one_batch_has_everything_even_below_the_minimum(
    broker: shmq.Broker, start: Start, kind: Kind[Any], options: dict[str, str]
) -> None:
    fill(broker, kind, [0, 0])
    query = start(kind, minOffsetsPerTrigger="40", **options)
    query.batch()  # the first batch of streams does not wait
    if kind is QUEUE:
        broker.queue("orders.0").put_many([b"x"] * 10)
    else:
        broker.stream("orders.0").append_many([b"x"] * 10, partition=0)
    assert sum(query.counts().values()) == 0
    assert sum(query.counts(ReadAllAvailable()).values()) == 10


@KINDS
@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "", "ten", str(1 << 63), "9" * 30])
@pytest.mark.parametrize("option", ["minOffsetsPerTrigger", "maxOffsetsPerTrigger"])
def test_a_limit_is_a_whole_number_from_one_on(kind: Kind[Any], option: str, limit: str) -> None:
    given = {"subscribe": "orders", option: limit}
    with pytest.raises(shmq.InvalidOption, match=f"option {option}='{limit}' must be a whole"):
        kind.stream_reader(given, SCHEMA)


@KINDS
def test_a_minimum_above_the_maximum_is_rejected_in_any_case(kind: Kind[Any]) -> None:
    given = {"subscribe": "orders", "MINOFFSETSPERTRIGGER": "101", "maxoffsetspertrigger": "100"}
    said = "minOffsetsPerTrigger must be at most maxOffsetsPerTrigger=100, not 101"
    with pytest.raises(shmq.InvalidOption, match=said):
        kind.stream_reader(given, SCHEMA)
    given["MINOFFSETSPERTRIGGER"] = "100"
    kind.stream_reader(given, SCHEMA)


def test_the_default_maximum_of_queues_bounds_the_minimum_too() -> None:
    with pytest.raises(shmq.InvalidOption, match="maxOffsetsPerTrigger=500000, not 500001"):
        QUEUE.stream_reader({"subscribe": "a", "minOffsetsPerTrigger": "500001"}, SCHEMA)


# ---- tasks ----


@KINDS
@pytest.mark.parametrize(("least", "tasks"), [(1, 6), (8, 8), (40, 40), (300, 205)])
def test_there_are_as_many_tasks_as_asked_for_even_if_some_have_one_row(
    broker: shmq.Broker, start: Start, kind: Kind[Any], least: int, tasks: int
) -> None:
    fill(broker, kind, [200, *[1] * 5])
    query = start(kind, minPartitions=str(least))
    assert len(query.batch()) == tasks
    given = {"url": broker.namespace, "subscribePattern": r"orders\..*"}
    reader: Any = kind.reader({**given, "minPartitions": str(least)}, SCHEMA)
    assert len(reader.partitions()) in {tasks, least}  # of a queue, slots without a message count


# ---- where a stream begins ----


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_stream_that_appears_after_a_run_without_any_is_read_from_its_beginning(
    broker: shmq.Broker, start: Start, now: bool, restarted: bool
) -> None:
    query = start(STREAM_KIND, now=now, startingOffsets="latest")
    assert query.batch() == []
    assert query.offset is not None
    fill(broker, STREAM_KIND, [7, 0])
    if now or restarted:
        query.restart()
    assert query.counts() == {("orders.0", 0): 7}


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, 6),
        ({"startingOffsets": "latest"}, 0),
        ({"STARTINGOFFSETS": "LATEST"}, 0),
        ({"startingOffsets": "earliest"}, 10),
        ({"startingOffsets": '{"orders.0": {"0": -1, "1": -2}}'}, 3),
        ({"startingTimestamp": "1000"}, 10),
    ],
)
def test_a_group_says_where_a_query_begins_if_no_option_does(
    broker: shmq.Broker, start: Start, options: dict[str, str], rows: int
) -> None:
    fill(broker, STREAM_KIND, [7, 3])
    broker.stream("orders.0").group("archive").reset({0: 2, 1: 2})
    query = start(STREAM_KIND, group="archive", **{"startingOffsets": "latest", **options})
    del query.given["startingOffsets"]
    query.restart(**options)
    assert sum(query.counts().values()) == rows


@pytest.mark.parametrize("option", ["group", "groupIdPrefix"])
def test_a_group_that_no_stream_can_have_is_an_error_before_anything_is_read(
    broker: shmq.Broker, start: Start, option: str
) -> None:
    fill(broker, STREAM_KIND, [7, 3])
    query = start(STREAM_KIND, **{option: "a/b"})
    with pytest.raises(shmq.InvalidName, match="a/b"):
        query.batch()


def test_partitions_that_are_not_assigned_for_a_while_are_read_on_from_where_they_were(
    broker: shmq.Broker, start: Start
) -> None:
    fill(broker, STREAM_KIND, [7, 3])
    query = start(STREAM_KIND)
    del query.given["subscribePattern"]
    query.restart(subscribe="orders.0")
    assert sum(query.counts().values()) == 10
    stream = broker.stream("orders.0")
    for partition in range(2):
        stream.append(b"x", partition=partition)
    del query.given["subscribe"]
    query.restart(assign='{"orders.0": [1]}')
    assert query.counts() == {("orders.0", 1): 1}
    query.restart(assign='{"orders.0": [0, 1]}')
    assert query.counts() == {("orders.0", 0): 1}


def test_a_stream_that_was_recreated_between_two_batches_is_an_error_or_read_from_its_beginning(
    broker: shmq.Broker, start: Start
) -> None:
    fill(broker, STREAM_KIND, [7, 3])
    query = start(STREAM_KIND)
    query.batch()
    broker.delete_stream("orders.0")
    fill(broker, STREAM_KIND, [4, 0])
    query.restart()
    with pytest.raises(shmq.StreamDeleted, match=r"orders\.0"):
        query.batch()
    query.restart(failOnDataLoss="false")
    assert query.counts() == {("orders.0", 0): 4}


def test_a_batch_that_would_begin_at_the_end_of_a_partition_is_rejected(
    broker: shmq.Broker,
) -> None:
    fill(broker, STREAM_KIND, [7, 3])
    for offsets in ("latest", '{"orders.0": {"0": -2, "1": -1}}'):
        given = {"url": broker.namespace, "subscribe": "orders.0", "startingOffsets": offsets}
        reader: Any = STREAM_KIND.reader(given, SCHEMA)
        with pytest.raises(shmq.InvalidOption, match="nothing would be read"):
            reader.partitions()


# ---- which kind ----


def source(broker: shmq.Broker, **options: str) -> ShmqSource:
    return ShmqSource({"url": broker.namespace, **options})


@pytest.mark.parametrize(
    "options",
    [{"subscribePattern": "orders.*"}, {"subscribe": "orders", "failOnDataLoss": "false"}],
)
def test_a_query_without_a_kind_is_rejected_while_nothing_decides_it(
    broker: shmq.Broker, options: dict[str, str]
) -> None:
    refused = source(broker, **options).streamReader(SCHEMA)
    with pytest.raises(shmq.InvalidOption, match=r"neither .* 'orders.*: say which is meant"):
        refused.initialOffset()
    for kind in ("queue", "stream"):
        reader: Any = source(broker, kind=kind, **options).streamReader(SCHEMA)
        reader.initialOffset()
        reader.stop()
    empty = source(broker, **options).kind()
    assert empty is QUEUE


@pytest.mark.parametrize(
    ("option", "kind"), [("startingOffsets", STREAM_KIND), ("leaseTimeout", QUEUE)]
)
def test_an_option_of_one_kind_decides(broker: shmq.Broker, option: str, kind: Kind[Any]) -> None:
    given = {"subscribePattern": "orders.*", option: "latest" if kind is STREAM_KIND else "60"}
    assert source(broker, **given).kind(for_query=True) is kind


def test_a_kind_stays_what_it_was_when_the_frame_was_made(broker: shmq.Broker) -> None:
    broker.create_queue("orders", dead_letter=None)
    found = source(broker, subscribe="orders")
    found.schema()
    broker.delete_queue("orders")
    broker.create_stream("orders", 1)
    assert found.kind(for_query=True) is QUEUE
    assert source(broker, subscribe="orders").kind(for_query=True) is STREAM_KIND
