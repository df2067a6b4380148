"""From a stream of this host to a stream of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

import shmq
from shmq.extras.nats.bridge.config import Mirror
from shmq.extras.nats.bridge.mirror import MirrorLane
from tests.support.bridge import PATIENCE, Bridged

EVENTS = Mirror(stream="events", batch=50)


def records(stream: shmq.Stream, partition: int) -> list[tuple[Any, ...]]:
    found = stream.read(partition, stream.earliest(partition))
    return [
        (one.offset, bytes(one.value), one.key, dict(one.headers), one.codec, one.timestamp_ns)
        for one in found
    ]


def test_each_partition_there_is_the_one_here(bridged: Bridged) -> None:
    stream = bridged.here.create_stream("events", partitions=3)
    for number in range(100):
        stream.append({"n": number}, key=f"k{number % 7}", headers={"a": number})
    (numbers,) = bridged.drain(EVENTS)
    assert (numbers.sent, numbers.lag_messages) == (100, 0)
    there = bridged.there.stream("events")
    for partition in range(3):
        assert records(there, partition) == records(stream, partition) != []


def test_a_mirror_goes_on_where_it_was(bridged: Bridged) -> None:
    stream = bridged.here.create_stream("events", partitions=1)
    stream.append_many([b"%d" % at for at in range(120)])
    bridged.drain(EVENTS)
    stream.append_many([b"%d" % at for at in range(120, 200)])
    (numbers,) = bridged.drain(EVENTS)
    assert (numbers.sent, numbers.duplicates) == (80, 0)
    assert records(bridged.there.stream("events"), 0) == records(stream, 0)


def test_two_mirrors_at_once_take_each_record_once(bridged: Bridged) -> None:
    stream = bridged.here.create_stream("events", partitions=1)
    stream.append_many([b"%d" % at for at in range(100)])
    lanes = [MirrorLane(bridged.here, lambda: bridged.there, EVENTS) for _ in range(2)]
    for lane in lanes:
        lane.open()
    assert lanes[0].step(careful=False, patience=PATIENCE)
    # The second one believes that the partition there is empty.
    lanes[1]._last[0], lanes[1]._reader.seek({0: 0})  # type: ignore[union-attr]
    lanes[1]._last[0] = 0
    with pytest.raises(shmq.OutOfSequence, match="another last record"):
        lanes[1].step(careful=False, patience=PATIENCE)
    assert lanes[1].step(careful=True, patience=PATIENCE)
    for lane in lanes:
        lane.close()
    assert records(bridged.there.stream("events"), 0) == records(stream, 0)


def test_a_stream_that_others_write_is_refused(bridged: Bridged) -> None:
    bridged.here.create_stream("events", partitions=1).append(b"here")
    bridged.there.create_stream("events", partitions=1).append(b"there")
    with (
        bridged.bridge(EVENTS) as running,
        pytest.raises(shmq.InvalidOption, match="ends with a record that is not of this stream"),
    ):
        running.wait(60)


def test_a_stream_with_other_partitions_is_refused(bridged: Bridged) -> None:
    bridged.here.create_stream("events", partitions=2)
    bridged.there.create_stream("events", partitions=1)
    with (
        bridged.bridge(EVENTS) as running,
        pytest.raises(shmq.InvalidOption, match="has 1 partitions, and the one of this host 2"),
    ):
        running.wait(60)
