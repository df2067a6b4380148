"""Options of a stream that change while it is in use.

Other levels: c/test_log_alter.c (the ring, at every place), system/cli/test_alter_stream.py,
system/processes/test_alter_stream.py, system/persistence/test_alter_stream.py, prove/crash (the
scenarios `alter`, `grow`, `grow_wrapped` and `grow_kept`).
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import shmq
from shmq import Broker
from shmq.api.options import options_of
from shmq.api.stream_options import StreamOptions
from tests.support.waiting import eventually

from .conftest import Connect
from .tools import in_thread, outcome

pytestmark = pytest.mark.refused_by_clusters

RING = 64 << 10

#: Another value for each option, than that of a new stream.
OTHERS: dict[str, Any] = {
    "partitions": 5,
    "ring_bytes": 32 << 20,
    "retention_bytes": 1 << 20,
    "retention_seconds": 60.0,
    "durability": "journal",
    "overflow": "block",
    "max_record_bytes": 1000,
    "confirm": "disk",
    "segment_bytes": 1 << 20,
    "mirror": "elsewhere",
}
ROWS = options_of(StreamOptions)
ALTERED = [name for name, row in ROWS.items() if row.changed_by == "alter_stream"]
FIXED = [name for name, row in ROWS.items() if row.fixed]


def values_of(stream: shmq.Stream) -> list[bytes]:
    """The values of all records of the first partition."""
    found: list[bytes] = []
    offset = stream.offsets()[0].earliest
    while records := stream.read(0, offset, 100):
        found += [bytes(record.value) for record in records]
        offset = records.next_offset
    return found


def test_each_option_can_be_altered_or_says_why_not() -> None:
    assert sorted([*ALTERED, *FIXED, "partitions"]) == sorted(ROWS) == sorted(OTHERS)


@pytest.mark.parametrize("name", [name for name in ALTERED if name != "confirm"])
def test_an_option_is_altered_alone_and_for_all(
    broker: Broker, connect: Connect, name: str
) -> None:
    clicks = broker.create_stream("clicks")
    before = clicks.options.as_dict()

    altered = broker.alter_stream("clicks", **{name: OTHERS[name]})

    assert altered.as_dict() == {**before, name: OTHERS[name]} != before
    assert connect().stream("clicks").options == altered == clicks.options
    if name != "ring_bytes":
        assert broker.alter_stream("clicks", **{name: before[name]}).as_dict() == before


def test_an_alteration_by_another_client_is_seen(broker: Broker, connect: Connect) -> None:
    clicks = broker.create_stream("clicks", 1, ring_bytes=RING)

    connect().alter_stream("clicks", ring_bytes=2 * RING, max_record_bytes=RING // 2)
    clicks.offsets()

    assert clicks.options.ring_bytes == 2 * RING
    assert clicks.append(b"x" * (RING // 2)).offset == 0


@pytest.mark.parametrize("name", FIXED)
def test_an_option_that_is_fixed_says_why_and_what_to_do(broker: Broker, name: str) -> None:
    before = broker.create_stream("clicks").options

    with pytest.raises(shmq.InvalidOption, match=r"stream 'clicks' .*unchanged.*create") as raised:
        broker.alter_stream("clicks", **{name: OTHERS[name], "retention_seconds": 9.0})

    assert ROWS[name].fixed in str(raised.value)
    assert broker.stream("clicks").options == before


def test_partitions_are_changed_by_a_call_of_their_own(broker: Broker) -> None:
    clicks = broker.create_stream("clicks", 2)

    with pytest.raises(shmq.InvalidOption, match=r"partitions=3 .*repartition"):
        broker.alter_stream("clicks", partitions=3)
    clicks.repartition(3)
    assert broker.alter_stream("clicks", partitions=3, retention_seconds=9.0).partitions == 3


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"ring_bytes": 0}, shmq.InvalidOption),
        ({"ring_bytes": -1}, shmq.InvalidOption),
        ({"ring_bytes": RING - 1}, shmq.InvalidOption),
        ({"ring_bytes": RING}, shmq.InvalidOption),
        ({"ring_bytes": 1 << 64}, shmq.InvalidOption),
        ({"ring_bytes": 32 * RING + 1}, shmq.InvalidOption),
        ({"ring_bytes": 1e9}, TypeError),
        ({"ring_bytes": math.nan}, TypeError),
        ({"ring_bytes": "x"}, TypeError),
        ({"ring_bytes": True}, TypeError),
        ({"ring_bytes": None}, TypeError),
        ({"retention_bytes": 0}, shmq.InvalidOption),
        ({"retention_bytes": 2 * RING + 1}, shmq.InvalidOption),
        ({"retention_seconds": 0}, shmq.InvalidOption),
        ({"retention_seconds": math.nan}, shmq.InvalidOption),
        ({"retention_seconds": "5s"}, TypeError),
        ({"max_record_bytes": 0}, shmq.InvalidOption),
        ({"max_record_bytes": RING}, shmq.InvalidOption),
        ({"confirm": "disk"}, shmq.InvalidOption),
        ({"confirm": "x"}, shmq.InvalidOption),
        ({"segment_bytes": 1}, shmq.InvalidOption),
        ({"ring": 1 << 20}, shmq.InvalidOption),
        ({"a" * 100_000: 9}, shmq.InvalidOption),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_alters_nothing(
    broker: Broker, given: dict[str, Any], error: type[Exception]
) -> None:
    clicks = broker.create_stream("clicks", 1, ring_bytes=2 * RING)
    before = clicks.options

    with pytest.raises(error, match=next(iter(given))[:100]):
        broker.alter_stream("clicks", **{"retention_seconds": 9.0, **given})

    assert broker.stream("clicks").options == before


def test_a_ring_only_grows_and_how_far_is_said(broker: Broker) -> None:
    broker.create_stream("clicks", 1, ring_bytes=RING)

    with pytest.raises(shmq.InvalidOption, match=f"is more than {16 * RING}.*create a larger"):
        broker.alter_stream("clicks", ring_bytes=16 * RING + 1)
    assert broker.alter_stream("clicks", ring_bytes=16 * RING).ring_bytes == 16 * RING
    with pytest.raises(shmq.InvalidOption, match=r"only grows; lower retention_bytes"):
        broker.alter_stream("clicks", ring_bytes=RING)


def test_nothing_is_altered_by_nothing(broker: Broker) -> None:
    options = broker.create_stream("clicks", retention_seconds=9.0).options

    assert broker.alter_stream("clicks") == options
    assert broker.alter_stream("clicks", retention_seconds=9) == options


def test_only_a_stream_that_exists_is_altered(broker: Broker) -> None:
    broker.create_queue("jobs")

    with pytest.raises(shmq.NoSuchStream, match="clicks"):
        broker.alter_stream("clicks", retention_seconds=9.0)
    with pytest.raises(shmq.NoSuchStream, match="jobs"):
        broker.alter_stream("jobs", retention_seconds=9.0)
    with pytest.raises(shmq.InvalidName):
        broker.alter_stream("a/b", retention_seconds=9.0)
    broker.create_stream("clicks")
    broker.delete_stream("clicks")
    with pytest.raises(shmq.NoSuchStream, match="clicks"):
        broker.alter_stream("clicks", retention_seconds=9.0)
    assert broker.list_streams() == []


def test_a_ring_that_grows_keeps_every_record_and_then_more(
    broker: Broker, connect: Connect
) -> None:
    clicks = broker.create_stream("clicks", 1, ring_bytes=RING)
    clicks.append_many([b"%05d" % n * 100 for n in range(300)])
    kept = values_of(clicks)

    connect().alter_stream("clicks", ring_bytes=4 * RING)
    more = [b"%05d" % n * 100 for n in range(300, 600)]
    clicks.append_many(more)

    assert values_of(clicks) == kept + more == values_of(connect().stream("clicks"))


def test_an_append_that_waits_for_room_goes_on_once_the_ring_grows(
    broker: Broker, connect: Connect
) -> None:
    clicks = broker.create_stream("clicks", 1, ring_bytes=RING, overflow="block")
    clicks.group("readers")
    with pytest.raises(shmq.Full, match="shmq stream alter clicks --ring-bytes"):
        for _ in range(1000):
            clicks.append(b"x" * 1000, block=False)
    latest = clicks.offsets()[0].latest
    appending = in_thread(connect().stream("clicks").append, b"y" * 1000)

    connect().alter_stream("clicks", ring_bytes=2 * RING)

    assert outcome(appending).offset == latest
    assert clicks.offsets()[0].earliest == 0


def test_a_record_may_be_larger_from_now_on(broker: Broker) -> None:
    clicks = broker.create_stream("clicks", 1, ring_bytes=RING)
    with pytest.raises(shmq.MessageTooLarge, match="max_record_bytes"):
        clicks.append(b"x" * 20_000)

    broker.alter_stream("clicks", ring_bytes=8 * RING, max_record_bytes=2 * RING)

    value = b"x" * (2 * RING)
    for _ in range(5):
        clicks.append(value)
    assert set(values_of(clicks)) == {value}


def test_a_shorter_retention_removes_what_is_there(broker: Broker) -> None:
    clicks = broker.create_stream("clicks", 1, ring_bytes=RING)
    clicks.append_many([b"x" * 100] * 100)

    broker.alter_stream("clicks", retention_seconds=0.01)
    eventually(lambda: clicks.offsets()[0].earliest == 100, "the records are too old")

    broker.alter_stream("clicks", retention_seconds=None, retention_bytes=4096)
    for _ in range(100):
        clicks.append(b"x" * 100)
    assert clicks.offsets()[0].bytes <= 4096 + 200


def test_all_partitions_are_altered_and_those_that_come(broker: Broker) -> None:
    clicks = broker.create_stream("clicks", 2, ring_bytes=RING)

    broker.alter_stream("clicks", ring_bytes=2 * RING)
    clicks.repartition(3)
    broker.alter_stream("clicks", ring_bytes=16 * RING)

    for partition in clicks.open_partitions:
        for _ in range(10):
            clicks.append_many([b"x" * 1000] * 80, partition=partition)
        assert clicks.offsets()[partition].earliest == 0


def test_an_ensured_stream_is_altered_where_that_is_asked_for(
    broker: Broker, connect: Connect
) -> None:
    broker.create_stream("clicks", 2, ring_bytes=RING).repartition(3)

    with connect().ensure_stream(
        "clicks", if_different="alter", partitions=2, ring_bytes=2 * RING
    ) as clicks:
        assert clicks.name == "clicks"
    assert broker.stream("clicks").options.ring_bytes == 2 * RING
    with pytest.raises(shmq.InvalidOption, match=r"partitions=7 .*repartition"):
        broker.ensure_stream("clicks", if_different="alter", partitions=7, ring_bytes=4 * RING)
    with pytest.raises(shmq.StreamExists, match="ring_bytes"):
        broker.ensure_stream("clicks", if_different="refuse", ring_bytes=4 * RING)
    with broker.ensure_stream("new", if_different="alter", ring_bytes=RING) as new:
        assert new.options.ring_bytes == RING
    assert broker.stream("clicks").options.ring_bytes == 2 * RING


def test_two_that_alter_different_options_at_once_both_do(broker: Broker, connect: Connect) -> None:
    broker.create_stream("clicks", 1, ring_bytes=RING)
    others = [connect(), connect()]

    def alter(other: Broker, name: str, step: int) -> None:
        for value in range(1, 31):
            other.alter_stream("clicks", **{name: step * value})  # type: ignore[arg-type]

    done = [
        in_thread(alter, other, *what)
        for other, what in zip(others, [("retention_seconds", 1), ("segment_bytes", RING)],
                               strict=True)
    ]  # fmt: skip
    for each in done:
        outcome(each)

    found = broker.stream("clicks").options
    assert (found.retention_seconds, found.segment_bytes) == (30.0, 30 * RING)


def test_a_record_that_is_lent_while_the_ring_grows_is_appended(broker: Broker) -> None:
    clicks = broker.create_stream("clicks", 1, ring_bytes=RING)
    for n in range(200):
        clicks.append(b"%d" % n * 200)

    with clicks.loan(1000, partition=0) as view:
        view[:500] = b"a" * 500
        broker.alter_stream("clicks", ring_bytes=2 * RING)
        for _ in range(400):
            clicks.append(b"x" * 500)
        view[500:] = b"b" * 500

    assert values_of(clicks)[-1] == b"a" * 500 + b"b" * 500


def test_a_task_alters_a_stream(broker: Broker) -> None:
    stream = broker.create_stream("s", 1)
    altered = asyncio.run(broker.aalter_stream("s", max_record_bytes=1000))
    assert (altered.max_record_bytes, stream.options.max_record_bytes) == (1000, 1000)
    with pytest.raises(shmq.InvalidOption, match="durability"):
        asyncio.run(broker.aalter_stream("s", durability="journal"))
    with pytest.raises(shmq.NoSuchStream, match="absent"):
        asyncio.run(broker.aalter_stream("absent", max_record_bytes=1000))
