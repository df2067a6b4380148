"""Streams: appending, reading by offset and by time, and what becomes of old records.

Other levels: c/test_log.c, c/test_stream_segment.c, unit/namespace/test_streams.py,
unit/storage/test_stream_records.py, system/wire/test_streams.py,
system/persistence/test_streams.py, system/cli/test_stream.py, prove/crash/stream_runner.py,
prove/powerloss/test_streams.py, prove/soak/test_streams.py.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import shmq
from shmq import Broker, Stream
from shmq.native import _stream
from tests.support.waiting import PATIENCE, eventually

from .tools import in_thread, outcome


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of one small partition."""
    return broker.create_stream("events", 1, ring_bytes=64 << 10)


def test_what_is_appended_is_read_and_stays(stream: Stream) -> None:
    appended = stream.append(b"hello")

    assert (appended.partition, appended.offset, appended.duplicate) == (0, 0, False)
    for _ in range(2):
        assert stream.read(0, 0).values() == [b"hello"]


def test_offsets_count_from_zero_without_gaps(stream: Stream) -> None:
    assert [stream.append(b"").offset for _ in range(3)] == [0, 1, 2]
    assert [(it.partition, it.first, it.count) for it in stream.append_many([b"3", b"4"])] == [
        (0, 3, 2)
    ]
    assert [record.offset for record in stream.read(0, 1)] == [1, 2, 3, 4]


def test_a_record_has_all_that_it_was_given(stream: Stream) -> None:
    before = time.time()
    appended = stream.append({"id": 7}, key="seven", headers={"kind": "new"})
    (record,) = stream.read(0, 0)

    assert record.body == {"id": 7}
    assert record.codec == "msgpack"
    assert (record.key, record.headers) == (b"seven", {"kind": "new"})
    assert (record.partition, record.offset) == (0, 0)
    assert before <= record.timestamp <= time.time()
    assert record.timestamp_ns == appended.timestamp_ns


def test_no_key_and_an_empty_one_differ(stream: Stream) -> None:
    stream.append_many([b"", b""], keys=[None, b""])

    assert [record.key for record in stream.read(0, 0)] == [None, b""]


def test_a_key_goes_to_one_partition_and_a_batch_to_all_of_its_keys(broker: Broker) -> None:
    stream = broker.create_stream("keyed", 4)
    keys = [f"key-{n}" for n in range(64)]
    ranges = stream.append_many([key.encode() for key in keys], keys=keys)

    assert sum(it.count for it in ranges) == 64
    assert len(ranges) == 4
    for partition in range(4):
        for record in stream.read(partition, 0):
            assert stream.append(b"", key=record.key).partition == partition


def test_a_read_has_at_most_what_was_asked_for_and_one_record_at_least(stream: Stream) -> None:
    stream.append_many([b"x" * 1000] * 5)

    assert len(stream.read(0, 0, 2)) == 2
    assert len(stream.read(0, 0, max_bytes=1)) == 1
    assert [record.offset for record in stream.read(0, 1, end=3)] == [1, 2]
    assert stream.read(0, 5).next_offset == 5


def test_records_are_a_sequence(stream: Stream) -> None:
    stream.append_many([b"a", b"b", b"c"])
    records = stream.read(0, 0)

    assert [records[0].value, records[-1].value] == [b"a", b"c"]
    assert [record.value for record in records[1:]] == [b"b", b"c"]
    with pytest.raises(IndexError):
        records[3]


def test_the_oldest_records_go_and_a_read_of_them_is_refused(stream: Stream) -> None:
    for n in range(2000):
        stream.append(b"%06d" % n * 10)
    earliest, latest = stream.earliest(0), stream.latest(0)

    assert 0 < earliest < latest == 2000
    with pytest.raises(shmq.OffsetOutOfRange) as refused:
        stream.read(0, 0)
    assert (refused.value.asked, refused.value.earliest, refused.value.latest) == (
        0,
        earliest,
        latest,
    )
    found = []
    offset = earliest
    while offset < latest:
        records = stream.read(0, offset, 77)
        found += records.values()
        offset = records.next_offset
    assert found == [b"%06d" % n * 10 for n in range(earliest, latest)]


def test_an_offset_beyond_the_next_one_is_refused(stream: Stream) -> None:
    with pytest.raises(shmq.OffsetOutOfRange, match="next one is 0"):
        stream.read(0, 1)


def test_a_time_leads_to_the_first_record_from_then_on(stream: Stream) -> None:
    start = time.time() - 100
    for n in range(500):
        stream.append(b"", timestamp=start + n // 10)

    assert stream.at(0.0, 0) == 0
    assert stream.at(start + 20, 0) == 200
    assert stream.at(start + 20.5, 0) == 210
    assert stream.at(time.time() + 100, 0) == 500
    (offsets,) = stream.offsets()
    assert (offsets.earliest, offsets.latest) == (0, 500)
    assert offsets.earliest_timestamp == pytest.approx(start)
    assert offsets.latest_timestamp == pytest.approx(start + 49)


def test_a_record_keeps_the_timestamp_that_it_was_given(stream: Stream) -> None:
    now = time.time()
    given = [now - 10, now - 20.123456, now + 1e9, 1.0, 0.1, now - 5]
    appended = [stream.append(b"", timestamp=each) for each in given]
    stream.append_many([b"k", b""], timestamp=now - 30.7, keys=[b"k", b"l"], headers=[None, {}])
    last = stream.append(b"")

    records = stream.read(0, 0)
    times = [*given, now - 30.7, now - 30.7, last.timestamp]
    assert [record.timestamp for record in records] == times
    assert [each.timestamp_ns for each in appended] == [r.timestamp_ns for r in records[:6]]
    assert [record.timestamp for record in stream.read(0, 1, where="age > 15")] == [
        times[n] for n in (1, 3, 4, 6, 7)
    ]
    assert (records[6].key, records[7].key, records[6].value) == (b"k", b"l", b"k")


def test_a_record_is_found_by_the_largest_timestamp_up_to_it(stream: Stream) -> None:
    start = time.time() - 1000
    for n in range(300):
        stream.append(b"", timestamp=start + n - (50 if n % 10 else 0))

    assert stream.at(start, 0) == 0
    assert stream.at(start + 100, 0) == 100
    assert stream.at(start + 100.5, 0) == 110
    assert stream.at(start + 291, 0) == 300
    (offsets,) = stream.offsets()
    assert offsets.latest_timestamp == pytest.approx(start + 290)


def test_a_record_from_the_future_moves_no_lookup(stream: Stream) -> None:
    stream.append(b"now")
    future = stream.append(b"later", timestamp=time.time() + 7 * 86400)
    then = a_while_after(time.time())
    stream.append_many([b"x"] * 900, partition=0)
    much_later = a_while_after(time.time())

    assert stream.read(0, 1, 1)[0].timestamp == future.timestamp
    assert stream.at(then, 0) == 2
    assert stream.at(much_later, 0) == stream.latest(0) == 902
    latest = stream.offsets()[0].latest_timestamp
    assert latest is not None
    assert then <= latest <= much_later
    reader = stream.reader(then, timeout=0.0)
    assert next(reader).offset == 2


def test_a_record_from_the_future_grows_old_as_others_do(broker: Broker) -> None:
    stream = broker.create_stream("brief", 1, retention_seconds=0.2)
    stream.append(b"later", timestamp=time.time() + 7 * 86400)

    eventually(lambda: stream.earliest(0) == 1, "it goes by its age here")


def a_while_after(moment: float) -> float:
    """A time that is later by more than it is told exactly, and has passed."""
    while time.time() < moment + 2e-3:
        time.sleep(0.001)
    return moment + 1e-3


@pytest.mark.parametrize("timestamp", [0.0, -1.0, float("nan"), 1.7e12])
def test_a_timestamp_that_is_none_is_refused(stream: Stream, timestamp: float) -> None:
    with pytest.raises(shmq.InvalidOption, match="seconds since 1970"):
        stream.append(b"", timestamp=timestamp)
    with pytest.raises(shmq.InvalidOption, match="seconds since 1970"):
        stream.append_many([b""], timestamp=timestamp)


def test_a_read_that_blocks_gets_what_comes(stream: Stream) -> None:
    waiting = in_thread(stream.read, 0, 0, block=True)
    stream.append(b"came")

    assert outcome(waiting).values() == [b"came"]


def test_a_read_that_blocks_ends_with_its_timeout(stream: Stream) -> None:
    assert len(stream.read(0, 0, block=True, timeout=0.01)) == 0


def test_a_reader_follows_the_stream_and_ends_when_nothing_comes(broker: Broker) -> None:
    stream = broker.create_stream("followed", 2)
    stream.append_many([b"a"], partition=0)
    stream.append_many([b"b"], partition=1)
    reader = stream.reader(timeout=PATIENCE)

    assert {next(reader).value, next(reader).value} == {b"a", b"b"}
    stream.append(b"c", partition=1)
    assert next(reader).value == b"c"
    assert reader.position == {0: 1, 1: 2}
    assert [it.value for it in stream.reader({0: 1, 1: 1}, timeout=0.0)] == [b"c"]
    assert list(stream.reader("latest", timeout=0.0)) == []


def test_a_reader_that_is_lapped_says_so_or_counts_what_it_lost(stream: Stream) -> None:
    stream.append_many([b"x" * 1000] * 100)
    strict = stream.reader({0: 0}, timeout=0.0)
    with pytest.raises(shmq.OffsetOutOfRange):
        next(strict)
    skipping = stream.reader({0: 0}, timeout=0.0, lapped="skip")

    assert next(skipping).offset == skipping.lost == stream.earliest(0)


def test_a_producer_appends_nothing_twice(stream: Stream) -> None:
    first = stream.append(b"a", partition=0, producer=5, sequence=0)
    again = stream.append(b"a", partition=0, producer=5, sequence=0)
    (batch,) = stream.append_many([b"b", b"c"], partition=0, producer=5, sequence=1)
    (repeated,) = stream.append_many([b"b", b"c"], partition=0, producer=5, sequence=1)

    assert (again.offset, again.duplicate) == (first.offset, True)
    assert (repeated.first, repeated.count, repeated.duplicate) == (batch.first, 2, True)
    assert stream.read(0, 0).values() == [b"a", b"b", b"c"]
    with pytest.raises(shmq.OutOfSequence) as refused:
        stream.append(b"x", partition=0, producer=5, sequence=9)
    assert (refused.value.expected, refused.value.given) == (3, 9)


def test_a_batch_that_is_there_in_part_is_refused_as_a_whole(stream: Stream) -> None:
    how: dict[str, Any] = {"partition": 0, "producer": 5}
    stream.append_many([b"a", b"b", b"c"], sequence=0, **how)

    for gaps in (False, True):
        with pytest.raises(shmq.OutOfSequence, match="none was appended; go on with 3") as refused:
            stream.append_many([b"c", b"d"], sequence=2, gaps=gaps, **how)
        assert (refused.value.expected, refused.value.given) == (3, 2)
    with pytest.raises(shmq.OutOfSequence):
        stream.append_block(_stream.pack_records([b"c", b"d"]), sequence=2, **how)
    assert stream.append_many([b"b", b"c"], sequence=1, **how)[0].duplicate  # a part of it
    stream.append_many([b"d"], sequence=3, **how)
    assert stream.read(0, 0).values() == [b"a", b"b", b"c", b"d"]


def test_the_sequence_of_a_producer_needs_its_partition(stream: Stream) -> None:
    for call in (
        lambda: stream.append(b"a", producer=5, sequence=0),
        lambda: stream.append(b"a", key="k", producer=5, sequence=0),
        lambda: stream.append_many([b"a"], producer=5, sequence=0),
    ):
        with pytest.raises(shmq.InvalidOption, match="of one partition: give it"):
            call()
    assert stream.latest(0) == 0


def test_an_expression_leaves_records_out(stream: Stream) -> None:
    stream.append_many([b"a", b"b", b"c"], headers=[{"kind": "x"}, None, {"kind": "x"}])
    records = stream.read(0, 0, where="header.kind = 'x'")

    assert records.values() == [b"a", b"c"]
    assert [record.offset for record in records] == [0, 2]
    assert records.next_offset == 3
    reader = stream.reader(where="header.kind = 'x'", timeout=0.0)
    assert [record.value for record in reader] == [b"a", b"c"]
    assert reader.position == {0: 3}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("key = 'ann'", [b"a", b"c"]),
        ("key like 'a%' and offset > 0", [b"c"]),
        ("key = null", [b"d"]),
        ("key != null", [b"a", b"b", b"c", b"e"]),
        ("key in ('bob', 'eve')", [b"b"]),
        ("partition = 1", []),
        ("partition = 0 and offset in (1, 3)", [b"b", b"d"]),
        ("size >= 2", []),
        ("codec = 'bytes' and not key = 'ann'", [b"b", b"d", b"e"]),
        ("age < 1h and at > '2020-01-01T00:00:00Z'", [b"a", b"b", b"c", b"d", b"e"]),
        ("age > 1h", []),
        ("header.kind = 'x'", [b"c"]),
        ("shape like '1-3 B %'", []),
    ],
)
def test_an_expression_asks_for_what_a_record_has(
    stream: Stream, where: str, found: list[bytes]
) -> None:
    keys = ["ann", "bob", "ann", None, b"\xff"]
    headers = [None, None, {"kind": "x"}, None, None]
    stream.append_many([b"a", b"b", b"c", b"d", b"e"], keys=keys, headers=headers)

    assert stream.read(0, 0, where=where).values() == found
    assert [record.value for record in stream.reader(where=where, timeout=0)] == found


@pytest.mark.parametrize("field", ["reason", "queue", "group", "priority", "sequence", "keys"])
def test_an_expression_may_not_ask_for_what_no_record_has(stream: Stream, field: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=f"field '{field}' does not exist"):
        stream.read(0, 0, where=f"{field} = null")
    with pytest.raises(shmq.InvalidOption, match="field"):
        stream.reader(where=f"{field} = null")


@pytest.mark.parametrize(
    "given",
    [
        {"keys": "ab"},
        {"keys": b"ab"},
        {"keys": {"a", "b"}},
        {"keys": 7},
        {"headers": {"kind": 1, "more": 2}},
        {"headers": "ab"},
        {"headers": iter([None, None])},
    ],
)
def test_what_goes_with_many_records_is_a_list(stream: Stream, given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(TypeError, match=f"{name}=.* must be a list with one entry"):
        stream.append_many([b"a", b"b"], **given)
    assert stream.latest(0) == 0


def test_a_reader_can_be_moved_and_read_in_blocks(stream: Stream) -> None:
    stream.append_many([b"%d" % n for n in range(10)])
    reader = stream.reader(limit=4)

    assert [records.values() for records in reader.poll()] == [[b"0", b"1", b"2", b"3"]]
    assert next(reader).value == b"4"
    reader.seek({0: 8})
    assert next(reader).value == b"8"
    assert [records.values() for records in reader.poll()] == [[b"9"]]
    assert reader.poll() == []
    with pytest.raises(shmq.InvalidOption):
        reader.seek({1: 0})


def test_a_block_of_records_is_appended_as_it_is(stream: Stream) -> None:
    source = stream.append_many([b"a", b"b"], keys=["k", None], headers=[None, {"h": 1}])
    block = stream.read(0, source[0].first).data
    done = stream.append_block(block, partition=0)

    assert (done.first, done.count, done.duplicate) == (2, 2, False)
    copied = stream.read(0, 2)
    assert [(it.key, it.headers, it.value, it.offset) for it in copied] == [
        (b"k", {}, b"a", 2),
        (None, {"h": 1}, b"b", 3),
    ]
    with pytest.raises(shmq.InvalidOption, match="not a block of records"):
        stream.append_block(block[:-8], partition=0)


def test_a_stream_that_keeps_records_for_a_time_lets_the_old_ones_go(broker: Broker) -> None:
    stream = broker.create_stream("brief", 1, retention_seconds=50.0)
    now = time.time()
    stream.append(b"old", timestamp=now - 100)
    stream.append(b"new", timestamp=now - 10)

    assert stream.earliest(0) == 1
    assert stream.read(0, 1).values() == [b"new"]
    with pytest.raises(shmq.OffsetOutOfRange):
        stream.read(0, 0)


@pytest.mark.parametrize("kept", [64 << 10, 256 << 10])
@pytest.mark.parametrize("part", [50, 7, 4])
def test_a_stream_keeps_nine_tenths_of_what_it_was_told(
    broker: Broker, kept: int, part: int
) -> None:
    stream = broker.create_stream("kept", 1, ring_bytes=kept, retention_bytes=kept)
    size, appended = min(kept // part, stream.options.max_record_bytes) // 8 * 8, 0
    value = bytes(size - 48)  # the record's frame has the rest
    for _ in range(5 * part):
        appended += size
        stream.append(value)
        there = (stream.latest(0) - stream.earliest(0)) * size
        assert there >= (0.9 * kept if appended > 2 * kept else min(appended, 0.9 * kept))
        assert there <= kept + 2 * len(value)


def test_what_a_ring_cannot_keep_is_no_promise(broker: Broker) -> None:
    with pytest.raises(shmq.InvalidOption, match="retention_bytes=65537 is more than ring_bytes"):
        broker.create_stream("s", 1, ring_bytes=64 << 10, retention_bytes=(64 << 10) + 1)


def test_a_stream_is_made_once_and_found_by_its_name(broker: Broker) -> None:
    made = broker.create_stream("one", 2)

    assert broker.create_stream("one", 2).identity == made.identity
    kept = broker.ensure_stream("one", if_different="accept", partitions=9)
    assert kept.identity == made.identity
    assert broker.stream("one").options == made.options
    with pytest.raises(shmq.StreamExists, match="partitions is 2, not 3"):
        broker.create_stream("one", 3)
    assert [(it.name, it.partitions, it.problem) for it in broker.list_streams()] == [
        ("one", 2, None)
    ]


def test_a_deleted_stream_is_gone_for_every_handle(broker: Broker) -> None:
    stream = broker.create_stream("gone", 1)
    waiting = in_thread(stream.read, 0, 0, block=True)
    broker.delete_stream("gone")

    with pytest.raises(shmq.StreamDeleted):
        outcome(waiting)
    with pytest.raises(shmq.StreamDeleted):
        stream.append(b"late")
    with pytest.raises(shmq.NoSuchStream):
        broker.stream("gone")
    with pytest.raises(shmq.NoSuchStream):
        broker.delete_stream("gone")


def test_a_record_that_can_never_fit_is_refused_at_once(stream: Stream) -> None:
    with pytest.raises(shmq.MessageTooLarge, match="max_record_bytes=16384"):
        stream.append(b"x" * 16385)
    assert stream.append(b"x" * 16384).offset == 0


def test_a_partition_that_there_is_not_is_refused(stream: Stream) -> None:
    for call in (
        lambda: stream.append(b"", partition=1),
        lambda: stream.read(1, 0),
        lambda: stream.latest(-1),
    ):
        with pytest.raises(shmq.InvalidOption, match="partition"):
            call()


@pytest.mark.parametrize("call", ["create_stream", "ensure_stream", "stream", "delete_stream"])
def test_what_cannot_name_a_stream_is_said_so(broker: Broker, call: str) -> None:
    with pytest.raises(shmq.InvalidName, match="invalid stream name 'a/b': "):
        getattr(broker, call)("a/b")


def test_a_stream_and_a_queue_may_have_one_name_if_that_is_allowed(broker: Broker) -> None:
    queue = broker.create_queue("both")
    stream = broker.create_stream("both", 1, allow_same_name=True)
    queue.put(b"message")
    stream.append(b"record")

    assert queue.get().body == b"message"
    assert stream.read(0, 0).values() == [b"record"]


def test_an_event_loop_waits_for_records_without_being_blocked(broker: Broker) -> None:
    stream = broker.create_stream("awaited", 2)

    async def follow() -> list[bytes]:
        reading = asyncio.create_task(stream.aread(0, 0))
        reader = stream.areader(timeout=PATIENCE)

        async def next_one() -> shmq.Record:
            return await anext(reader)

        following = asyncio.create_task(next_one())
        await asyncio.sleep(0)
        stream.append(b"one", partition=0)
        records = await reading
        stream.append(b"two", partition=1)
        return [*records.values(), (await following).value, (await anext(reader)).value]

    assert asyncio.run(follow()) == [b"one", b"one", b"two"]
    assert len(asyncio.run(stream.aread(0, 1, timeout=0.01))) == 0


def test_an_event_loop_that_waits_learns_of_the_deletion(broker: Broker) -> None:
    stream = broker.create_stream("awaited", 1)

    async def follow() -> None:
        reading = asyncio.create_task(stream.aread(0, 0))
        await asyncio.sleep(0.01)
        broker.delete_stream("awaited")
        await reading

    with pytest.raises(shmq.StreamDeleted):
        asyncio.run(follow())
