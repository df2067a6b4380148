"""Rows that are staged, and published exactly once."""

from __future__ import annotations

import array
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import LATER, MOMENT, SOON, drain, in_thread, in_time, next_message

MANY = [b"%d" % number for number in range(2500)]


def rows_of(
    bodies: Sequence[bytes], metas: Sequence[bytes] | None = None, codec: str | None = None
) -> shmq.Rows:
    """The rows in columns, with something before the first one."""

    def column(values: Sequence[bytes]) -> tuple[bytes, array.array[int]]:
        offsets = array.array("i", [3])
        for value in values:
            offsets.append(offsets[-1] + len(value))
        return b"xyz" + b"".join(values), offsets

    if metas is None:
        return shmq.Rows(*column(bodies), codec)
    return shmq.Rows(*column(bodies), codec, *column(metas))


def staging_queues(broker: Broker) -> list[str]:
    return [each.name for each in broker.list_queues() if ".staged." in each.name]


def test_what_is_staged_is_seen_once_it_is_published(queue: Queue, other: Queue) -> None:
    queue.staged_publisher("p").stage(0, "one", [b"a", b"b"])
    assert other.qsize() == 0

    assert other.staged_publisher("p").commit_batch(0, ["one"]) == 2

    assert drain(queue) == [b"a", b"b"]


def test_the_order_of_parts_and_of_rows_is_kept(queue: Queue, other: Queue) -> None:
    queue.staged_publisher("p").stage(0, "second", MANY[1200:2000])
    other.staged_publisher("p").stage(0, "first", MANY[:1200])
    queue.staged_publisher("p").stage(0, "second", MANY[2000:])

    assert queue.staged_publisher("p").commit_batch(0, ["first", "second"]) == 2500

    assert drain(queue) == MANY


def test_a_batch_is_published_once(queue: Queue, other: Queue) -> None:
    queue.staged_publisher("p").stage(4, "one", [b"a"])
    assert queue.staged_publisher("p").commit_batch(4, ["one"]) == 1

    queue.staged_publisher("p").stage(4, "again", [b"a"])
    queue.staged_publisher("p").stage(3, "early", [b"b"])
    again = [
        other.staged_publisher("p").commit_batch(4, ["again"]),
        other.staged_publisher("p").commit_batch(3, ["early"]),
    ]

    assert again == [0, 0]
    assert other.staged_publisher("p").sealed() == 4
    assert drain(queue) == [b"a"]


def test_what_is_sealed_is_known_before_anything_is_staged(queue: Queue, broker: Broker) -> None:
    assert queue.staged_publisher("p").sealed() is None
    assert not staging_queues(broker)

    assert queue.staged_publisher("p").commit_batch(7, []) == 0

    assert queue.staged_publisher("p").sealed() == 7
    assert queue.staged_publisher("another").sealed() is None


def test_a_row_has_the_properties_of_a_put(broker: Broker) -> None:
    queue = broker.create_queue("rows", priorities=5, dedupe_window=600)
    queue.staged_publisher("p").stage(
        0,
        "one",
        [
            (b"low", {"priority": 0}),
            (b'{"a":1}', {"codec": "json", "headers": {"h": 1}, "group": "g", "priority": 4}),
            (b"own", {"codec": "avro", "reply_to": "r", "correlation": "c"}),
        ],
    )

    queue.staged_publisher("p").commit_batch(0, ["one"])

    first, second, third = queue.get_many(3)
    assert (first.body, first.headers, first.group, first.priority) == ({"a": 1}, {"h": 1}, "g", 4)
    assert (second.body, second.codec, second.reply_to) == (b"own", "avro", "r")
    assert (second.correlation, third.body) == ("c", b"low")


def test_a_delay_counts_from_the_publishing(queue: Queue) -> None:
    staged: list[Any] = [(b"much later", {"delay": LATER}), (b"later", {"delay": SOON}), b"now"]
    queue.staged_publisher("p").stage(0, "one", staged)
    time.sleep(2 * SOON)
    began = time.monotonic()
    queue.staged_publisher("p").commit_batch(0, ["one"])

    assert {next_message(queue).body, next_message(queue).body} == {b"now", b"later"}
    assert time.monotonic() - began >= SOON
    assert queue.stats().delayed == 1


def test_a_ttl_counts_from_the_publishing(queue: Queue) -> None:
    epochs = itertools.count()

    def publish_late() -> None:
        epoch = next(epochs)
        queue.staged_publisher("p").stage(epoch, "one", [(b"short", {"ttl": MOMENT})])
        time.sleep(1.5 * MOMENT)

        queue.staged_publisher("p").commit_batch(epoch, ["one"])

        assert queue.peek()[0].body == b"short"

    in_time(publish_late, IndexError)
    eventually(lambda: queue.qsize() == 0, "it expires")


def test_a_row_of_which_the_id_is_known_is_left_out(broker: Broker) -> None:
    queue = broker.create_queue("ids", dedupe_window=600)
    queue.put(b"put", dedupe_id="1")
    queue.staged_publisher("p").stage(
        0, "one", [(b"known", {"dedupe_id": "1"}), (b"new", {"dedupe_id": "2"})]
    )
    queue.staged_publisher("p").stage(0, "one", [(b"twice", {"dedupe_id": "2"}), b"without"])

    assert queue.staged_publisher("p").commit_batch(0, ["one"]) == 2

    assert queue.put(b"later", dedupe_id="2").duplicate
    assert drain(queue) == [b"put", b"new", b"without"]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (b"x" * 2000, shmq.MessageTooLarge),
        ((b"x", {"priority": 3}), shmq.InvalidOption),
        ((b"x", {"delay": -1}), shmq.InvalidOption),
        ((b"x", {"dedupe_id": "no window"}), shmq.InvalidOption),
        ((b"x", {"unheard": 1}), TypeError),
        ("text", TypeError),
        (7, TypeError),
    ],
)
def test_what_can_never_be_put_is_refused_when_it_is_staged(
    broker: Broker, row: Any, error: type[Exception]
) -> None:
    queue = broker.create_queue("small", max_message_bytes=1000)

    with pytest.raises(error):
        queue.staged_publisher("p").stage(0, "one", [b"good", row])
    assert [stats.name for stats in broker.list_queues()] == ["small", "small.dlq"]

    queue.staged_publisher("p").stage(0, "one", [b"other"])
    assert queue.staged_publisher("p").commit_batch(0, ["one"]) == 1
    assert drain(queue) == [b"other"]


def test_a_row_that_can_never_be_put_leaves_none_of_its_columns_staged(broker: Broker) -> None:
    queue = broker.create_queue("small", max_message_bytes=1000)
    bodies = [b"%d" % number for number in range(10_000)]

    with pytest.raises(shmq.MessageTooLarge):
        queue.staged_publisher("p").stage(0, "one", rows_of([*bodies, b"x" * 2000]))
    with pytest.raises(shmq.InvalidOption, match="'one'"):
        queue.staged_publisher("p").commit_batch(0, ["one"])

    queue.staged_publisher("p").stage(0, "one", rows_of(bodies))
    assert queue.staged_publisher("p").commit_batch(0, ["one"]) == len(bodies)
    assert drain(queue) == bodies


def test_rows_may_be_columns(queue: Queue) -> None:
    queue.staged_publisher("p").stage(0, "one", rows_of([b"a", b"", b"ccc"]))
    queue.staged_publisher("p").stage(0, "one", rows_of([b"d\xc3\xa9"], codec="text"))
    high = b"\x81\xa3pri\x02"
    queue.staged_publisher("p").stage(0, "one", rows_of([b"low", b"high"], [b"", high]))
    queue.staged_publisher("p").stage(0, "one", rows_of([]))

    assert queue.staged_publisher("p").commit_batch(0, ["one"]) == 6

    assert drain(queue) == [b"high", b"a", b"", b"ccc", "dé", b"low"]


def test_the_codec_of_columns_is_that_of_rows_whose_properties_name_none(queue: Queue) -> None:
    own = msgpack.packb({"group": "g", "codec": "json"})
    rows = rows_of([b"1", b"2", b"3"], [b"", msgpack.packb({"group": "h"}), own], "text")
    assert len(rows) == 3
    queue.staged_publisher("p").stage(0, "one", rows)
    queue.staged_publisher("p").commit_batch(0, ["one"])

    assert [(message.body, message.group) for message in queue.get_many(3, block=False)] == [
        ("1", None),
        ("2", "h"),
        (3, "g"),
    ]


@pytest.mark.parametrize(
    "rows",
    [
        shmq.Rows(b"abc", array.array("i", [0, 2, 1])),
        shmq.Rows(b"abc", array.array("i", [0, 4])),
        shmq.Rows(b"abc", array.array("i", [-1, 1])),
        shmq.Rows(b"abc", array.array("i", [0, 3]), None, b"\xc1", array.array("i", [0, 1])),
        shmq.Rows(b"abc", array.array("i", [0, 3]), None, b"", array.array("i", [0, 0, 0])),
        shmq.Rows(b"abc", array.array("i", [0, 3]), "unheard"),
    ],
)
@pytest.mark.only_local("the columns are taken apart before they are sent")
def test_columns_that_contradict_themselves_are_refused(queue: Queue, rows: shmq.Rows) -> None:
    with pytest.raises(shmq.InvalidOption):
        queue.staged_publisher("p").stage(0, "one", rows)


@pytest.mark.only_local("the columns are taken apart before they are sent")
def test_a_property_that_is_refused_is_named_with_its_row_and_value(queue: Queue) -> None:
    wrong = {
        msgpack.packb({"pri": 99}): "row 1: property pri is out of range: .*, and not 99$",
        msgpack.packb({"group": b"g"}): "row 1: property group must be a str, and not b'g'$",
        msgpack.packb({"codec": list(range(99))}): r"codec must be a str, and not \[0, 1.{70,80}…$",
    }
    for meta, told in wrong.items():
        with pytest.raises(shmq.InvalidOption, match=told):
            queue.staged_publisher("p").stage(0, "one", rows_of([b"x", b"y"], [b"", meta]))


def test_rows_that_were_not_published_are_never_seen(queue: Queue, broker: Broker) -> None:
    queue.staged_publisher("p").stage(0, "failed", [b"x"])
    queue.staged_publisher("p").stage(0, "good", [b"a"])
    queue.staged_publisher("p").stage(1, "next", [b"b"])

    queue.staged_publisher("p").commit_batch(0, ["good"])
    queue.staged_publisher("p").commit_batch(1, ["next"])

    assert drain(queue) == [b"a", b"b"]


def test_an_empty_part_can_be_published(queue: Queue) -> None:
    queue.staged_publisher("p").stage(0, "none", [])

    assert queue.staged_publisher("p").commit_batch(0, ["none"]) == 0
    assert queue.staged_publisher("p").sealed() == 0


def test_a_part_that_was_never_staged_is_refused(queue: Queue) -> None:
    queue.staged_publisher("p").stage(0, "there", [b"a"])

    with pytest.raises(shmq.InvalidOption, match="'missing'"):
        queue.staged_publisher("p").commit_batch(0, ["there", "missing"])

    assert queue.staged_publisher("p").sealed() is None
    assert queue.staged_publisher("p").commit_batch(0, ["there"]) == 1


def test_a_publish_that_is_refused_makes_no_staging_queue(queue: Queue, broker: Broker) -> None:
    before = broker.list_queues()

    with pytest.raises(shmq.InvalidOption, match="'missing'"):
        queue.staged_publisher("p").commit_batch(0, ["missing"])

    assert broker.list_queues() == before


def test_a_full_queue_takes_what_fits_and_the_rest_later(broker: Broker) -> None:
    queue = broker.create_queue("few", capacity=3)
    queue.staged_publisher("p").stage(0, "one", MANY[:10])
    found = []
    for _ in range(3):
        with pytest.raises(shmq.Full):
            queue.staged_publisher("p").commit_batch(0, ["one"], timeout=0)
        found += drain(queue)
    assert found == MANY[:9]

    assert queue.staged_publisher("p").commit_batch(0, ["one"], timeout=0) == 1

    assert drain(queue) == MANY[9:10]


def test_a_publish_waits_for_room(broker: Broker, connect: Connect) -> None:
    queue = broker.create_queue("few", capacity=3)
    queue.staged_publisher("p").stage(0, "one", MANY[:100])
    published = in_thread(
        connect().queue("few").staged_publisher("p").commit_batch, 0, ["one"], timeout=PATIENCE
    )
    found = []
    for _ in range(100):
        message = queue.get(timeout=PATIENCE)
        found.append(message.body)
        message.ack()

    assert published.result(PATIENCE) == 100
    assert found == MANY[:100]


def test_a_queue_that_drops_its_oldest_has_the_newest_rows(broker: Broker) -> None:
    queue = broker.create_queue("newest", capacity=3, overflow="drop-oldest")
    queue.put(b"old")
    queue.staged_publisher("p").stage(0, "one", MANY[:10])

    assert queue.staged_publisher("p").commit_batch(0, ["one"]) == 10

    assert drain(queue) == MANY[7:10]


def test_publishers_that_race_put_each_row_once(broker: Broker, connect: Connect) -> None:
    queue = broker.create_queue("raced", capacity=100_000)
    for part in range(8):
        queue.staged_publisher("p").stage(0, str(part), MANY[part * 300 : (part + 1) * 300])
    racers = [connect().queue("raced") for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        parts = [str(part) for part in range(8)]
        counts = list(
            pool.map(lambda racer: racer.staged_publisher("p").commit_batch(0, parts), racers)
        )

    assert sum(counts) == 2400
    assert drain(queue) == MANY[:2400]


def test_what_does_not_fit_is_full_and_stages_nothing(queue: Queue) -> None:
    queue.staged_publisher("p").stage(0, "one", [bytes(1000)] * 50, staging_bytes=1 << 16)

    with pytest.raises(shmq.Full, match="staging_bytes"):
        queue.staged_publisher("p").stage(0, "two", [bytes(1000)] * 50, staging_bytes=1 << 16)

    queue.staged_publisher("p").stage(0, "two", [b"small"], staging_bytes=1 << 16)
    assert queue.staged_publisher("p").commit_batch(0, ["one", "two"]) == 51


def test_large_rows_are_published(queue: Queue) -> None:
    bodies = [bytes([number]) * (700_000 * number) for number in range(1, 4)]
    queue.staged_publisher("p").stage(0, "one", bodies)

    assert queue.staged_publisher("p").commit_batch(0, ["one"]) == 3

    assert drain(queue) == bodies


def test_a_sweep_removes_what_is_not_sealed(queue: Queue) -> None:
    queue.staged_publisher("p").stage(0, "run1.0", [b"a"])
    queue.staged_publisher("p").stage(0, "run2.0", [b"b"])
    queue.staged_publisher("p").stage(1, "run1.1", [b"c"])

    assert queue.staged_publisher("p").sweep("run2.") == 2

    assert queue.staged_publisher("p").commit_batch(0, ["run2.0"]) == 1
    queue.staged_publisher("p").stage(1, "run3.0", [b"d"])
    assert queue.staged_publisher("p").sweep() == 1
    assert queue.staged_publisher("nobody").sweep() == 0


def test_what_is_discarded_is_gone(queue: Queue, broker: Broker) -> None:
    queue.staged_publisher("p").stage(5, "one", [b"a"])
    queue.staged_publisher("p").commit_batch(5, ["one"])
    queue.staged_publisher("p").stage(6, "one", [b"b"])
    assert len(staging_queues(broker)) == 1

    queue.staged_publisher("p").discard()
    queue.staged_publisher("p").discard()

    assert not staging_queues(broker)
    assert queue.staged_publisher("p").sealed() is None
    queue.staged_publisher("p").stage(0, "one", [b"c"])
    assert queue.staged_publisher("p").commit_batch(0, ["one"]) == 1
    assert drain(queue) == [b"a", b"c"]


def test_deleting_a_queue_removes_what_is_staged_for_it(queue: Queue, broker: Broker) -> None:
    queue.staged_publisher("p").stage(0, "one", [b"a"])
    queue.staged_publisher("another").stage(0, "one", [b"a"])
    assert len(staging_queues(broker)) == 2

    broker.delete_queue(queue.name)

    assert not staging_queues(broker)
    with pytest.raises(shmq.QueueDeleted):
        queue.staged_publisher("p").stage(0, "one", [b"a"])


@pytest.mark.parametrize(
    ("publisher", "batch", "part"),
    [("", 0, "x"), ("p", -1, "x"), ("p", 0, ""), ("p", 0, "x" * 201)],
)
def test_names_and_numbers_out_of_range_are_refused(
    queue: Queue, publisher: str, batch: int, part: str
) -> None:
    with pytest.raises(shmq.InvalidOption):
        queue.staged_publisher(publisher).stage(batch, part, [b"a"])


def test_a_name_that_leaves_no_room_for_a_staging_queues_is_refused(broker: Broker) -> None:
    queue = broker.create_queue("n" * 85)

    with pytest.raises(shmq.InvalidOption, match="84"):
        queue.staged_publisher("p").stage(0, "one", [b"a"])
