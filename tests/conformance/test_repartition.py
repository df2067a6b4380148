"""More partitions for a stream that is in use: no key's records change their order.

All of it in memory, and for a stream with a journal that a writer keeps meanwhile.

Other levels: prove/persistence/test_repartition.py, prove/crash/stream_runner.py.
"""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from shmq import Broker, Record, Stream
from tests.support.waiting import PATIENCE, eventually
from tests.support.writer_process import running_writer

from .conftest import Connect
from .tools import LATER, SOON

KEYS = [b"key-%d" % n for n in range(8)]


@pytest.fixture(params=["memory", "journal"])
def options(request: pytest.FixtureRequest, namespace: str) -> Iterator[dict[str, Any]]:
    """What a stream is made with; one with a journal has a writer."""
    # Rings that hold all that a test appends: what is dropped as the oldest looks like a loss.
    given = {"ring_bytes": 4 << 20, "durability": request.param}
    if request.param == "memory":
        yield given
        return
    with running_writer(namespace):
        yield given


@pytest.fixture
def stream(broker: Broker, options: dict[str, Any]) -> Stream:
    """A stream of two partitions."""
    return broker.create_stream("events", 2, **options)


@pytest.fixture
def other(connect: Connect, stream: Stream) -> Iterator[Stream]:
    """The same stream, from another client."""
    with connect().stream(stream.name) as other:
        yield other


def append_round(stream: Stream, number: int) -> None:
    """A record of each key."""
    for key in KEYS:
        stream.append(b"%d" % number, key=key)


def by_key(records: list[Record]) -> dict[bytes, list[int]]:
    """The numbers of each key, as they came."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for record in records:
        found[record.key or b""].append(int(record.value))
    return found


def test_records_go_to_the_new_partitions_alone(stream: Stream, other: Stream) -> None:
    append_round(stream, 0)

    assert stream.repartition(4) == range(2, 6)

    for handle in (stream, other):
        assert handle.append(b"1", key=KEYS[0]).partition == 2 + zlib.crc32(KEYS[0]) % 4
        assert handle.append(b"1").partition >= 2
        assert {at.partition for at in handle.append_many([b"1"] * 8, keys=KEYS)} <= {2, 3, 4, 5}
        assert handle.open_partitions == range(2, 6)
        assert handle.partitions == 6
        assert handle.options.partitions == 4
    assert [found.sealed for found in other.offsets()] == [True] * 2 + [False] * 4
    assert [found.behind for found in other.offsets()] == [0] * 2 + [2] * 4
    assert sum(found.latest for found in other.offsets()[:2]) == len(KEYS)


def test_what_was_appended_before_stays_where_it_was(stream: Stream) -> None:
    at = stream.append(b"old", key=b"k")
    stream.repartition(3)
    assert stream.read(at.partition, at.offset).values() == [b"old"]


BATCHES: dict[str, dict[str, Any]] = {
    "in large batches": {"linger": LATER, "compression": "lz4"},
    "in batches": {"linger": LATER, "batch_bytes": 200, "idempotent": False},
    "soon": {"linger": 0.001},
}


@pytest.mark.parametrize("how", BATCHES)
def test_what_a_producer_was_given_is_appended_after_the_stream_was_repartitioned(
    stream: Stream, other: Stream, how: str
) -> None:
    with stream.producer(**BATCHES[how]) as producer:
        for number in range(30):
            if number in (10, 20):
                other.repartition(len(other.open_partitions) + 1)
            if number % 7 == 6:
                producer.flush()
            for key in KEYS:
                producer.send(b"%d" % number, key=key)
            producer.send(b"%d" % number)
    assert (producer.pending, producer.appended) == (0, 30 * len(KEYS) + 30)
    found = by_key(list(other.reader(timeout=0)))
    assert sorted(found.pop(b"")) == list(range(30))
    assert found == {key: list(range(30)) for key in KEYS}


@pytest.mark.parametrize("how", BATCHES)
def test_a_producer_loses_nothing_while_the_stream_is_repartitioned(
    stream: Stream, other: Stream, how: str
) -> None:
    repartitioned = threading.Event()

    def repartition() -> None:
        for partitions in range(3, 9):
            other.repartition(partitions)
        repartitioned.set()

    thread = threading.Thread(target=repartition)
    number = 0
    with stream.producer(**BATCHES[how]) as producer:
        thread.start()
        while not repartitioned.is_set() or number < 50:
            for key in KEYS:
                producer.send(b"%d" % number, key=key)
            number += 1
    thread.join()
    assert (producer.pending, producer.appended) == (0, number * len(KEYS))
    found = by_key(list(other.reader(timeout=0)))
    assert found == {key: list(range(number)) for key in KEYS}


def test_a_sealed_partition_takes_nothing(stream: Stream, other: Stream) -> None:
    stream.append(b"0", partition=1, producer=7, sequence=0)
    stream.repartition(3)
    for handle in (stream, other):
        with pytest.raises(shmq.PartitionSealed, match="2 to 4"):
            handle.append(b"1", partition=1)
        with pytest.raises(shmq.PartitionSealed):
            handle.append_many([b"1", b"2"], partition=0)
        assert handle.append(b"0", partition=1, producer=7, sequence=0).duplicate
        assert handle.append(b"1", partition=4).partition == 4


def test_each_partition_says_what_a_producer_has_appended_to_it(
    stream: Stream, other: Stream
) -> None:
    most = (1 << 63) - 1
    stream.append_many([b"", b""], partition=1, producer=most, sequence=5)
    assert other.produced(most) == [None, 6]
    stream.repartition(3)
    other.append_many([b"", b""], partition=3, producer=most, sequence=6)
    for handle in (stream, other):
        assert handle.produced(most) == [None, 6, None, 7, None]
        assert handle.produced(7) == [None] * 5
        for strange in (-1, most + 1):
            with pytest.raises(shmq.InvalidOption, match=f"producer={strange}"):
                handle.produced(strange)


def test_only_more_partitions_are_possible(stream: Stream) -> None:
    for partitions in (0, 1, 2, 1023, 5000):
        with pytest.raises(shmq.InvalidOption):
            stream.repartition(partitions)
    with pytest.raises(TypeError):
        stream.repartition("4")  # type: ignore[arg-type]
    assert stream.partitions == 2
    stream.repartition(3)
    with pytest.raises(shmq.InvalidOption):
        stream.repartition(3)
    assert stream.repartition(4) == range(5, 9)


def test_a_stream_that_is_made_again_has_as_many_as_take_records_or_had_at_first(
    broker: Broker, stream: Stream, options: dict[str, Any]
) -> None:
    stream.repartition(3)
    assert broker.create_stream("events", 3, **options).partitions == 5
    assert broker.create_stream("events", 2, **options).partitions == 5
    with pytest.raises(shmq.StreamExists):
        broker.create_stream("events", 4, **options)
    broker.delete_stream("events")
    with pytest.raises(shmq.StreamDeleted):
        stream.repartition(9)
    assert broker.create_stream("events", 2).partitions == 2


def test_readers_take_up_what_comes_in_the_order_of_each_key(stream: Stream, other: Stream) -> None:
    reader = other.reader(limit=3, timeout=SOON)
    append_round(stream, 0)
    append_round(stream, 1)
    assert next(reader).value == b"0"
    stream.repartition(3)
    append_round(stream, 2)
    stream.repartition(5)
    append_round(stream, 3)

    found = by_key(list(reader))

    assert sum(map(len, found.values())) == 4 * len(KEYS) - 1
    assert all(numbers == sorted(numbers) for numbers in found.values())
    again = by_key(list(other.reader(limit=3, timeout=SOON)))
    assert again == {key: [0, 1, 2, 3] for key in KEYS}


def test_a_reader_that_waits_gets_what_comes_to_new_partitions(
    stream: Stream, other: Stream
) -> None:
    reader = other.reader("latest", timeout=PATIENCE)
    found: list[Record] = []
    thread = threading.Thread(target=lambda: found.append(next(reader)))
    thread.start()
    stream.repartition(3)
    stream.append(b"new")
    thread.join(PATIENCE)
    assert [record.value for record in found] == [b"new"]


def test_a_group_goes_over_once_it_has_committed_what_was_before(
    stream: Stream, other: Stream
) -> None:
    append_round(stream, 0)
    with stream.group("g").join() as one, other.group("g").join() as two:
        stream.repartition(4)
        append_round(stream, 1)

        def divided() -> bool:
            for member in (one, two):
                member.poll(1)
            return one.assignment | two.assignment == frozenset(range(6))

        eventually(divided, "all partitions have a member")
        for member in (one, two):
            assert len(member.assignment & {0, 1}) == 1
            assert len(member.assignment & {2, 3, 4, 5}) == 2
            for partition in member.assignment:
                member.seek(partition, 0)
        first = [r for m in (one, two) for rs in m.poll(timeout=SOON) for r in rs]
        assert by_key(first) == {key: [0] for key in KEYS}
        assert not one.poll(timeout=SOON)
        one.commit()
        assert not one.poll()
        assert not two.poll()
        two.commit()
        second: list[Record] = []

        def all_came() -> bool:
            second.extend(r for m in (one, two) for rs in m.poll() for r in rs)
            return len(second) == len(KEYS)

        eventually(all_came, "the group has read the new partitions")
        assert by_key(second) == {key: [1] for key in KEYS}


def test_a_group_goes_over_though_an_expression_leaves_out_all_that_was_before(
    stream: Stream,
) -> None:
    append_round(stream, 0)
    with stream.group("g").join(where="codec = 'msgpack'") as member:
        stream.repartition(3)
        stream.append({"n": 7}, key="a")
        found: list[Any] = []

        def came() -> bool:
            found.extend(r.body for rs in member.poll() for r in rs)
            member.commit()
            return bool(found)

        eventually(came, "the group has read the new partitions")
        assert found == [{"n": 7}]
        assert set(stream.group("g").lag().values()) == {0}


def test_a_member_that_waits_goes_over_what_is_left_out_at_the_end_of_what_was_before(
    stream: Stream,
) -> None:
    append_round(stream, 0)
    with stream.group("g").join(where="codec = 'msgpack'", timeout=PATIENCE) as member:
        stream.repartition(3)
        stream.append({"n": 7}, key="a")
        assert next(member).body == {"n": 7}
    assert set(stream.group("g").lag().values()) <= {0, 1}


def test_what_a_member_was_handed_is_not_done_before_it_says_so(stream: Stream) -> None:
    stream.append({"n": 0}, partition=0)
    append_round(stream, 0)
    group = stream.group("g")
    with group.join(where="codec = 'msgpack'", timeout=SOON) as member:
        assert next(member).body == {"n": 0}
        stream.repartition(3)
        stream.append({"n": 1}, key="a")
        assert next(member, None) is None
        assert group.committed()[0] is None
        member.commit()
        assert next(member).body == {"n": 1}


def test_a_group_that_begins_at_the_end_misses_nothing_of_what_comes(stream: Stream) -> None:
    append_round(stream, 0)
    with stream.group("g", start="latest").join() as member:
        assert not member.poll()
        stream.repartition(3)
        append_round(stream, 1)
        found: list[Record] = []

        def all_came() -> bool:
            found.extend(r for rs in member.poll() for r in rs)
            return len(found) == len(KEYS)

        eventually(all_came, "it has what came to the new partitions")
    with stream.group("later", start="latest").join() as member:
        assert not member.poll(timeout=SOON)


def test_what_a_group_has_not_done_is_kept_in_new_partitions_too(broker: Broker) -> None:
    stream = broker.create_stream("kept", 1, ring_bytes=64 << 10, overflow="block")
    stream.group("g")
    stream.repartition(2)
    with pytest.raises(shmq.Full):
        for _ in range(100):
            stream.append(b"x" * 1000, partition=1, block=False)
    assert stream.earliest(1) == 0


def test_a_wait_for_room_goes_on_in_a_new_partition(broker: Broker) -> None:
    stream = broker.create_stream("full", 1, ring_bytes=64 << 10, overflow="block")
    stream.group("g")
    with pytest.raises(shmq.Full):
        for _ in range(100):
            stream.append(b"x" * 1000, key=b"k", block=False)
    done = []
    thread = threading.Thread(
        target=lambda: done.append(stream.append(b"x" * 1000, key=b"k", timeout=PATIENCE))
    )
    thread.start()
    stream.repartition(2)
    thread.join(PATIENCE)
    assert done[0].partition in (1, 2)


def test_a_share_lends_what_is_in_new_partitions(stream: Stream) -> None:
    append_round(stream, 0)
    with stream.share("s") as share:
        stream.repartition(3)
        append_round(stream, 1)
        found = 0
        while found < 2 * len(KEYS):
            for record in share.get_many(100, timeout=PATIENCE):
                record.ack()
                found += 1


def test_a_producer_takes_its_batches_to_the_new_partitions(stream: Stream, other: Stream) -> None:
    with other.producer(linger=LATER, batch_bytes=1 << 20) as producer:
        for number in range(2):
            for key in KEYS:
                producer.send(b"%d" % number, key=key)
        stream.repartition(5)
        for key in KEYS:
            producer.send(b"2", key=key)
    assert stream.latest(0) == stream.latest(1) == 0
    assert by_key(list(stream.reader(timeout=SOON))) == {key: [0, 1, 2] for key in KEYS}


def test_a_subscription_goes_on_in_new_partitions(stream: Stream) -> None:
    with stream.subscribe("#", timeout=PATIENCE) as subscription:
        stream.append(b"0", key=b"k")
        stream.repartition(3)
        stream.append(b"1", key=b"k")
        assert [next(subscription).value for _ in range(2)] == [b"0", b"1"]


def test_nothing_is_lost_and_no_key_is_out_of_order_while_others_append(
    stream: Stream, connect: Connect
) -> None:
    rounds = 300

    def append(keys: list[bytes]) -> None:
        with connect_stream() as mine:
            for number in range(rounds):
                mine.append_many([b"%d" % number] * len(keys), keys=keys)

    connect_stream: Callable[[], Stream] = lambda: connect().stream("events")  # noqa: E731
    threads = [threading.Thread(target=append, args=(KEYS[n::2],)) for n in range(2)]
    for thread in threads:
        thread.start()
    for partitions in (3, 4, 7):
        stream.repartition(partitions)
    for thread in threads:
        thread.join(PATIENCE)
    assert by_key(list(stream.reader(timeout=SOON))) == {key: list(range(rounds)) for key in KEYS}


def test_a_repeated_create_gets_it_though_it_has_more_partitions(
    broker: Broker, stream: Stream, options: dict[str, Any]
) -> None:
    stream.repartition(3)
    stream.repartition(5)

    for partitions in (2, 5):  # what it was made with, and what it has
        assert broker.create_stream("events", partitions, **options).identity == stream.identity
    with pytest.raises(shmq.StreamExists, match="partitions is 5, not 3"):
        broker.create_stream("events", 3, **options)


def test_a_stream_with_other_options_than_those_given_is_refused_where_that_is_asked_for(
    broker: Broker,
) -> None:
    broker.create_stream("clicks", partitions=2, retention_seconds=100)
    with pytest.raises(shmq.StreamExists, match="partitions is 2, not 3") as told:
        broker.ensure_stream("clicks", if_different="refuse", partitions=3, retention_seconds=9)
    assert told.value.differences == {"partitions": (3, 2), "retention_seconds": (9, 100)}
    assert broker.ensure_stream("clicks", if_different="accept", partitions=3).partitions == 2


def test_of_a_stream_that_was_repartitioned_each_number_of_partitions_is_its_own(
    broker: Broker,
) -> None:
    broker.create_stream("clicks", partitions=2).repartition(3)
    for partitions in (2, 3, 5):
        broker.ensure_stream("clicks", if_different="refuse", partitions=partitions)
    with pytest.raises(shmq.StreamExists):
        broker.ensure_stream("clicks", if_different="refuse", partitions=4)
