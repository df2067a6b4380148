"""Streams: what the options say, where a read begins and ends, and what the checkpoint keeps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmq
from shmq.spark import format_dispatch
from shmq.spark.shared.options import BATCH, STREAM, WRITE, Use
from shmq.spark.shared.subscription import Subscription
from shmq.spark.stream.append import STICKY, Partitioner, Records
from shmq.spark.stream.bounds import EARLIEST, LATEST, Bound, PartitionBounds
from shmq.spark.stream.kind import STREAM_KIND
from shmq.spark.stream.offset import NOWHERE, Progress, StreamOffset
from shmq.spark.stream.reader import Range, cut


def of_streams(use: Use = BATCH, /, **given: str) -> dict[str, Any]:
    return STREAM_KIND.parse(given, use)


# ---- which streams ----


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "none of them is given"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "several of them"),
        ({"subscribe": "a", "subscribePattern": "b"}, "several of them"),
    ],
)
def test_it_takes_one_way_to_say_which_streams(given: dict[str, str], said: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=said):
        Subscription.of(of_streams(**given), "stream")


def test_partitions_are_assigned_by_json() -> None:
    topics = Subscription.of(of_streams(assign='{"orders": [2, 0], "paid": [1]}'), "stream")
    assert topics.partitions("orders", 4) == (0, 2)
    with pytest.raises(shmq.InvalidOption, match="partition 1 of the stream 'paid'"):
        topics.partitions("paid", 1)


@pytest.mark.parametrize("text", ["", "orders", '{"a": []}', '{"a": [0, 0]}', '{"a": [-1]}', "{}"])
def test_an_assignment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(shmq.InvalidOption, match="partitions of streams as JSON"):
        of_streams(assign=text)


@pytest.mark.parametrize("name", sorted(STREAM_KIND.refused))
def test_what_queues_and_kafka_have_and_streams_have_not_is_refused_with_the_reason(
    name: str,
) -> None:
    with pytest.raises(shmq.InvalidOption) as refused:
        of_streams(**{name: "1"})
    assert STREAM_KIND.refused[name] in str(refused.value)


# ---- where it begins and ends ----

SOME = PartitionBounds(10, 20)


def at_time(seconds: float) -> int:
    """Record n was appended n seconds after the year 1970 began."""
    return min(max(int(seconds), SOME.earliest), SOME.latest)


def start(**given: str) -> int:
    return Bound.starting(of_streams(**given), EARLIEST).of("s", 0, SOME, at_time)


def end(**given: str) -> int:
    return Bound.ending(of_streams(**given)).of("s", 0, SOME, at_time)


@pytest.mark.parametrize(
    ("given", "offset"),
    [
        ({}, 10),
        ({"startingOffsets": "latest"}, 20),
        ({"startingOffsets": "Earliest"}, 10),
        ({"startingOffsets": '{"s": {"0": 12}}'}, 12),
        ({"startingOffsets": '{"s": {"0": -2}}'}, 10),
        ({"startingOffsets": '{"s": {"0": -1}}'}, 20),
        ({"startingTimestamp": "15000"}, 15),
        ({"startingOffsetsByTimestamp": '{"s": {"0": 16000}}'}, 16),
        ({"startingTimestamp": "15000", "startingOffsets": "latest"}, 15),
        ({"startingTimestamp": "99000", "startingOffsetsByTimestampStrategy": "latest"}, 20),
    ],
)
def test_where_a_read_begins(given: dict[str, str], offset: int) -> None:
    assert start(**given) == offset


@pytest.mark.parametrize(
    ("given", "offset"),
    [
        ({}, 20),
        ({"endingOffsets": '{"s": {"0": 17}}'}, 17),
        ({"endingTimestamp": "15000"}, 15),
        ({"endingTimestamp": "99000"}, 20),
        ({"endingOffsetsByTimestamp": '{"s": {"0": 11000}}'}, 11),
    ],
)
def test_where_a_batch_ends(given: dict[str, str], offset: int) -> None:
    assert end(**given) == offset


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": '{"other": {"0": 1}}'}, "nothing of partition 0 of the stream 's'"),
        ({"startingOffsets": '{"s": {"0": -3}}'}, "earliest, latest, or JSON"),
        ({"startingOffsets": "now"}, "earliest, latest, or JSON"),
        ({"startingTimestamp": "yesterday"}, "ms since 1970"),
        ({"startingTimestamp": "99000"}, "no record of it is of that time or later"),
    ],
)
def test_a_beginning_that_cannot_be_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=said):
        start(**given)


def test_an_end_at_the_earliest_offset_is_refused() -> None:
    for given in ("earliest", '{"s": {"0": -2}}'):
        with pytest.raises(shmq.InvalidOption, match="nothing would be read"):
            end(endingOffsets=given)


def test_a_bound_of_what_is_not_read_is_refused() -> None:
    bound = Bound.starting(of_streams(startingOffsets='{"s": {"0": 1, "7": 2}}'), LATEST)
    with pytest.raises(shmq.InvalidOption, match="partition 7 of the stream 's', which is not"):
        bound.check({"s": (0, 1)})


# ---- the checkpoint ----


def test_an_offset_comes_back_from_json_as_it_was() -> None:
    streams = {"b": Progress(7, {0: 5, 1: 0}), "a": Progress(9, {2: 3}, {2: 1})}
    for offset in (StreamOffset(streams), StreamOffset(streams, "a-1", ("b", 1), 3), NOWHERE):
        assert StreamOffset.of_json(json.loads(json.dumps(offset.as_json()))) == offset
    assert list(StreamOffset(streams).as_json()["streams"]) == ["a", "b"]


def test_an_offset_without_a_stream_is_another_one_than_the_one_before_all() -> None:
    empty = StreamOffset({})
    assert StreamOffset.of_json(empty.as_json()) == empty != NOWHERE
    assert StreamOffset.of_json({"version": 1, "streams": {}}) == empty


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"version": 2, "streams": {}},
        {"version": 1, "batch": 1, "queues": {}},
        {"version": 1, "streams": {"a": {"id": "x", "next": {}}}},
        {"version": 1, "streams": {"a": {"id": "1", "next": {"0": -1}}}},
        {"version": 1, "streams": {"a": {"id": "1", "next": {"0": 1}, "began": {"1": 0}}}},
        {"version": 1, "streams": {"a": {"id": "1", "next": {"0": "1"}}}},
        {"version": 1, "streams": {}, "turn": "a"},
        {"version": 1, "streams": {}, "turn": ["a", "0"]},
        {"version": 1, "streams": {}, "tasks": 0},
        {"version": 1, "streams": []},
    ],
)
def test_json_that_is_no_offset_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(shmq.ShmqError, match="give the query a checkpoint of its own"):
        StreamOffset.of_json(given)


def test_a_batch_is_what_is_between_two_offsets_and_where_something_began() -> None:
    before = StreamOffset({"a": Progress(9, {0: 5, 1: 5})})
    after = StreamOffset(
        {"a": Progress(9, {0: 7, 1: 5, 2: 4}, {2: 1}), "b": Progress(3, {0: 2}, {0: 2})}
    )
    assert list(after.since(before)) == [("a", 9, 0, 5, 7), ("a", 9, 2, 1, 4)]


def test_a_batch_without_a_known_beginning_is_refused() -> None:
    with pytest.raises(shmq.ShmqError, match="a batch before that is missing"):
        list(StreamOffset({"a": Progress(9, {0: 7})}).since(NOWHERE))


# ---- tasks ----


def test_ranges_stay_as_they_are_unless_more_parts_are_wanted() -> None:
    ranges = [Range("a", 1, 0, 0, 30), Range("a", 1, 1, 5, 5), Range("a", 1, 2, 0, 10)]
    assert cut(ranges, None) == [ranges[0], ranges[2]] == cut(ranges, 2)

    parts = cut(ranges, 4)
    assert len(parts) == 4
    assert [part.start for part in parts[1:3]] == [part.end for part in parts[:2]]
    assert sum(map(len, parts)) == 40


def records(count: int, **columns: Any) -> Records:
    values = pa.array([b"v"] * count, pa.binary())
    return Records(**{"values": values, "keys": None, "headers": None, "partitions": None,
                      "codec": 0, **columns})  # fmt: skip


def test_rows_without_a_key_stay_together_and_take_turns() -> None:
    spread = Partitioner(3, 1, range(3))
    first, second = spread.of(records(STICKY)), spread.of(records(10))
    assert set(first) == {1}
    assert set(second) == {2}


def test_a_key_goes_where_an_append_takes_it_and_a_column_before_that() -> None:
    keys = pa.array([b"a", None, b"b", b"a"], pa.binary())
    moved = Partitioner(9, 3, range(2, 9)).of(records(4, keys=keys))
    found = Partitioner(7, 3, range(7)).of(records(4, keys=keys))
    assert moved.tolist() == [2 + partition for partition in found.tolist()]
    assert found.tolist() == [0xE8B7BE43 % 7, 3, 0x71BEEFF9 % 7, 0xE8B7BE43 % 7]

    asked = pa.array([5, None, None, 0], pa.int32())
    assert Partitioner(7, 3, range(7)).of(records(4, keys=keys, partitions=asked)).tolist() == [
        5, 3, 0x71BEEFF9 % 7, 0
    ]  # fmt: skip
    with pytest.raises(shmq.InvalidOption, match=r"partition has 5, .* partitions 0 to 1"):
        Partitioner(2, 0, range(2)).of(records(4, partitions=asked))


def test_records_are_taken_with_all_that_they_have() -> None:
    keys = pa.array([b"a", None, b"c"], pa.binary())
    some = records(3, keys=keys, codec=np.array([0, 1, 2], np.uint8)).taken(np.array([2, 1]))
    assert some.keys == keys.take(pa.array([2, 1]))
    assert list(np.asarray(some.codec)) == [2, 1]
    block, end = some.block(0, 2, 1 << 20)
    assert (len(block), end) == (112, 2)


# ---- which kind ----


@pytest.mark.parametrize(
    ("given", "use"),
    [
        ({"subscribe": "a", "states": "ready"}, BATCH),
        ({"subscribe": "a", "startingOffsets": "earliest"}, STREAM),
        ({"topic": "a", "staged": "false"}, WRITE),
        ({"topic": "a", "confirm": "disk"}, WRITE),
    ],
)
def test_a_configuration_may_be_of_either_kind(given: dict[str, str], use: Use) -> None:
    format_dispatch.check(given, use)


def test_a_configuration_that_is_of_no_kind_is_refused_by_the_nearest() -> None:
    with pytest.raises(shmq.InvalidOption, match="no option 'states': it is of queues"):
        format_dispatch.check(
            {"subscribe": "a", "states": "ready", "startingOffsets": "latest"}, BATCH
        )
    with pytest.raises(shmq.InvalidOption, match="a queue has no offsets"):
        format_dispatch.check(
            {"kind": "queue", "subscribe": "a", "startingOffsets": "latest"}, BATCH
        )
