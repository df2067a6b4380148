"""The options of a queue: defaults, ranges, and what a full queue does.

Other levels: tree/test_options.py, c/test_segment.c.
"""

from __future__ import annotations

import datetime as dt
import math
import pickle
import re
from typing import Any

import pytest

import shmq
from shmq import Broker, QueueOptions
from shmq.api.options import options_of

from .conftest import Connect
from .tools import LATER, drain, in_thread, lease_all, outcome, putter_asleep

DEFAULTS: dict[str, Any] = {
    "capacity": 16_384,
    "arena_bytes": 16 * 1024 * 1024,
    "max_message_bytes": 4 * 1024 * 1024,
    "visibility_timeout": 30.0,
    "max_deliveries": 5,
    "error_bytes": 4096,
    "dead_letter": "jobs.dlq",
    "ttl": None,
    "dead_letter_ttl": None,
    "on_expired": "dead-letter",
    "priorities": 3,
    "retry_delay": 1.0,
    "retry_delay_max": 300.0,
    "dedupe_window": 0.0,
    "overflow": "reject",
    "durability": "memory",
    "snapshot_interval": 30.0,
    "confirm": "memory",
    "expires": None,
    "auto_delete": False,
    "exclusive": False,
}

ALLOWED: list[tuple[str, Any]] = [
    ("capacity", 1),
    ("capacity", 100_000),
    ("arena_bytes", 4096),
    ("arena_bytes", 32 * 1024 * 1024),
    ("max_message_bytes", 1),
    ("max_message_bytes", DEFAULTS["arena_bytes"]),
    ("visibility_timeout", 0.001),
    ("visibility_timeout", 5),
    ("visibility_timeout", 1e9),
    ("max_deliveries", 1),
    ("max_deliveries", 65_534),
    ("max_deliveries", None),
    ("error_bytes", 0),
    ("error_bytes", 1),
    ("error_bytes", 4096),
    ("dead_letter", "graveyard"),
    ("dead_letter", None),
    ("ttl", 0.001),
    ("ttl", 86_400),
    ("ttl", None),
    ("dead_letter_ttl", 0.001),
    ("dead_letter_ttl", 86_400),
    ("dead_letter_ttl", None),
    ("on_expired", "drop"),
    ("priorities", 1),
    ("priorities", 16),
    ("retry_delay", 0),
    ("retry_delay", 2.5),
    ("retry_delay_max", 0),
    ("retry_delay_max", 1e9),
    ("dedupe_window", 0),
    ("dedupe_window", 3600),
    ("overflow", "block"),
    ("overflow", "drop-oldest"),
    ("durability", "snapshot"),
    ("durability", "journal"),
    ("snapshot_interval", 0.1),
    ("snapshot_interval", 86_400),
    ("expires", 600),
    ("expires", 86_400),
    ("expires", None),
    ("auto_delete", True),
    ("auto_delete", False),
    ("exclusive", False),
]

REFUSED: list[tuple[str, Any]] = [
    ("capacity", 0),
    ("capacity", -1),
    ("capacity", 1 << 24),
    ("arena_bytes", 4095),
    ("arena_bytes", (1 << 37) + 1),
    ("max_message_bytes", 0),
    ("max_message_bytes", DEFAULTS["arena_bytes"] + 1),
    ("visibility_timeout", 0),
    ("visibility_timeout", -1),
    ("visibility_timeout", 1e10),
    ("visibility_timeout", math.nan),
    ("visibility_timeout", math.inf),
    ("max_deliveries", 0),
    ("max_deliveries", 65_535),
    ("error_bytes", -1),
    ("error_bytes", 4097),
    ("error_bytes", 1 << 70),
    ("ttl", 0),
    ("ttl", -1),
    ("ttl", math.nan),
    ("dead_letter_ttl", 0),
    ("dead_letter_ttl", math.inf),
    ("on_expired", "keep"),
    ("priorities", 0),
    ("priorities", 17),
    ("retry_delay", -0.1),
    ("retry_delay", math.inf),
    ("retry_delay_max", -1),
    ("retry_delay_max", 1e10),
    ("dedupe_window", -1),
    ("overflow", "explode"),
    ("dead_letter", "jobs"),
    ("durability", "paper"),
    ("snapshot_interval", 0.05),
    ("snapshot_interval", 1e10),
    ("confirm", "disk"),  # without a journal
    ("confirm", "paper"),
    ("expires", 0),
    ("expires", -1),
    ("expires", math.inf),
]

WRONG_TYPE: list[tuple[str, Any]] = [
    ("capacity", 1.5),
    ("capacity", "10"),
    ("capacity", True),
    ("capacity", None),
    ("arena_bytes", 1e6),
    ("arena_bytes", "1 MiB"),
    ("max_message_bytes", "big"),
    ("visibility_timeout", "30"),
    ("visibility_timeout", None),
    ("visibility_timeout", True),
    ("max_deliveries", 2.0),
    ("error_bytes", 2.0),
    ("error_bytes", None),
    ("error_bytes", True),
    ("error_bytes", "x"),
    ("ttl", "soon"),
    ("dead_letter_ttl", "soon"),
    ("on_expired", None),
    ("priorities", 3.0),
    ("retry_delay", None),
    ("dedupe_window", "1h"),
    ("overflow", 1),
    ("arena_bytes", None),
    ("max_deliveries", "5"),
    ("ttl", True),
    ("dead_letter", 5),
    ("dead_letter", b"dead"),
    ("overflow", ["block"]),
    ("retry_delay_max", "5m"),
    ("priorities", True),
    ("durability", None),
    ("snapshot_interval", "1m"),
    ("confirm", True),
    ("expires", "1h"),
    ("expires", True),
    ("auto_delete", 1),
    ("auto_delete", "yes"),
    ("auto_delete", None),
    ("exclusive", 0),
    ("exclusive", None),
]


def test_a_queue_made_without_options_has_the_defaults(broker: Broker) -> None:
    assert broker.create_queue("jobs").options.as_dict() == DEFAULTS


def test_the_largest_message_is_by_default_a_quarter_of_the_arena(broker: Broker) -> None:
    assert broker.create_queue("jobs", arena_bytes=40_000).options.max_message_bytes == 10_000


@pytest.mark.parametrize(("option", "value"), ALLOWED)
def test_every_value_in_range_is_what_all_clients_see(
    connect: Connect, option: str, value: Any
) -> None:
    given = {option: value}
    made = connect().create_queue("jobs", **given)

    seen = connect().queue("jobs").options

    assert getattr(seen, option) == value
    assert seen == made.options == QueueOptions.for_queue("jobs", given)


def test_every_option_that_is_a_duration_may_be_a_timedelta() -> None:
    rows = options_of(QueueOptions)
    durations = {name for name, row in rows.items() if row.kind == "seconds"}

    made = QueueOptions.for_queue("jobs", dict.fromkeys(durations, dt.timedelta(hours=1)))

    assert made == QueueOptions.for_queue("jobs", dict.fromkeys(durations, 3600.0))
    assert {type(getattr(made, name)) for name in durations} == {float}
    for length in (dt.timedelta(seconds=-1), dt.timedelta.max):
        with pytest.raises(shmq.InvalidOption, match=r"ttl=.* out of range"):
            QueueOptions.for_queue("jobs", {"ttl": length})


def test_a_queue_is_created_with_timedeltas(broker: Broker) -> None:
    minute = dt.timedelta(minutes=1)
    options = broker.create_queue("jobs", visibility_timeout=minute, ttl=2 * minute).options

    assert (options.visibility_timeout, options.ttl) == (60, 120)
    assert broker.ensure_queue("jobs", visibility_timeout=minute, ttl=120).options == options


@pytest.mark.parametrize("option", ["capacity", "priorities", "arena_bytes"])
def test_an_extreme_queue_still_carries_a_message(broker: Broker, option: str) -> None:
    smallest: Any = {"capacity": 1, "priorities": 1, "arena_bytes": 4096}[option]
    queue = broker.create_queue("jobs", **{option: smallest})

    for number in range(100):
        queue.put(number)
        assert drain(queue) == [number]


@pytest.mark.parametrize(("option", "value"), REFUSED)
def test_a_value_out_of_range_is_refused_by_name_and_nothing_is_made(
    broker: Broker, option: str, value: Any
) -> None:
    with pytest.raises(shmq.InvalidOption) as error:
        broker.create_queue("jobs", **{option: value})

    assert option in str(error.value)
    assert str(value) in str(error.value)
    assert broker.list_queues() == []


@pytest.mark.parametrize(("option", "value"), WRONG_TYPE)
@pytest.mark.parametrize("method", ["create_queue", "ensure_queue"])
def test_a_value_of_the_wrong_type_is_a_type_error_that_names_it_and_nothing_is_made(
    broker: Broker, method: str, option: str, value: Any
) -> None:
    with pytest.raises(TypeError) as error:
        getattr(broker, method)("jobs", **{option: value})

    assert type(value).__name__ in str(error.value)
    assert option.replace("_", "-")[:11] in str(error.value).replace("_", "-")
    assert broker.list_queues() == []


@pytest.mark.parametrize("method", ["create_queue", "ensure_queue"])
def test_an_unknown_option_is_refused_with_the_nearest_known_one(
    broker: Broker, method: str
) -> None:
    with pytest.raises(shmq.InvalidOption, match=r"capactiy.*capacity"):
        getattr(broker, method)("jobs", capactiy=5)

    assert broker.list_queues() == []


def test_an_option_like_no_other_is_refused_with_all_that_there_are(broker: Broker) -> None:
    with pytest.raises(shmq.InvalidOption) as error:
        broker.create_queue("jobs", zzz=5)  # type: ignore[call-arg]

    assert all(option in str(error.value) for option in DEFAULTS)


def test_a_dead_letter_queue_must_have_a_name_that_is_allowed(broker: Broker) -> None:
    with pytest.raises(shmq.InvalidName, match=re.escape("no/slash")):
        broker.create_queue("jobs", dead_letter="no/slash")

    assert broker.list_queues() == []


def test_the_dead_letter_queue_takes_the_sizes_of_its_queue(broker: Broker) -> None:
    broker.create_queue("jobs", capacity=7, priorities=5, ttl=LATER, dedupe_window=LATER)

    options = broker.queue("jobs.dlq").options

    assert (options.capacity, options.priorities) == (7, 5)
    assert (options.ttl, options.dedupe_window, options.max_deliveries) == (None, 0.0, None)


def test_the_dead_letter_queue_is_as_durable_as_its_queue(broker: Broker) -> None:
    broker.create_queue("jobs", durability="journal", snapshot_interval=5.0, confirm="disk")
    dead_letter_queue = broker.queue("jobs.dlq").options
    assert (dead_letter_queue.durability, dead_letter_queue.snapshot_interval) == ("journal", 5.0)
    assert dead_letter_queue.confirm == "memory"


def test_the_capacity_is_the_number_of_messages_held(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=5)

    assert queue.put_many(range(9)) == 5
    assert queue.full()


def test_capacity_counts_visible_delayed_and_leased_messages(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=3)
    queue.put(b"leased")
    queue.get()
    queue.put(b"delayed", delay=LATER)
    queue.put(b"visible")

    with pytest.raises(shmq.Full):
        queue.put(b"one more")


def test_a_full_arena_is_full_long_before_the_capacity(broker: Broker) -> None:
    queue = broker.create_queue("jobs", arena_bytes=65_536, max_message_bytes=16_384)
    put = queue.put_many([bytes([number]) * 16_000 for number in range(10)])

    assert 2 <= put <= 4
    with pytest.raises(shmq.Full):
        queue.put(bytes(16_000))
    assert drain(queue) == [bytes([number]) * 16_000 for number in range(put)]
    queue.put(bytes(16_000))


def test_a_put_that_blocks_waits_for_bytes_too(connect: Connect) -> None:
    queue = connect().create_queue(
        "jobs", arena_bytes=65_536, max_message_bytes=16_384, overflow="block"
    )
    queue.put_many([bytes(16_000)] * 9, block=False)
    waiter = in_thread(connect().queue("jobs").put, b"\x01" * 16_000)
    putter_asleep(queue)

    drained = drain(queue)

    outcome(waiter)
    assert len(drained + drain(queue)) >= 3
    assert queue.empty()


def test_drop_oldest_drops_the_deliverable_message_with_the_lowest_sequence(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=3, overflow="drop-oldest")
    queue.put(b"1", priority=shmq.HIGH)
    queue.put(b"2")
    queue.put(b"3")

    queue.put(b"4")

    assert drain(queue) == [b"2", b"3", b"4"]
    assert queue.stats().dropped == 1


def test_drop_oldest_leaves_what_waits_behind_its_group(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=3, overflow="drop-oldest")
    queue.put(b"in flight", group="g")
    held = queue.get()
    queue.put(b"behind", group="g")
    queue.put(b"free")

    queue.put(b"new")

    assert drain(queue) == [b"new"]
    held.ack()
    assert drain(queue) == [b"behind"]


def test_drop_oldest_drops_what_waits_behind_its_group_if_nothing_is_deliverable(
    broker: Broker,
) -> None:
    queue = broker.create_queue("jobs", capacity=3, overflow="drop-oldest")
    queue.put(b"in flight", group="g")
    held = queue.get()
    queue.put_many([b"behind 1", b"behind 2"], group="g")

    queue.put(b"new")

    held.ack()
    assert drain(queue) == [b"behind 2", b"new"]


def test_drop_oldest_drops_neither_leased_nor_delayed_messages(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=2, overflow="drop-oldest")
    queue.put(b"leased")
    held = queue.get()
    queue.put(b"delayed", delay=LATER)

    with pytest.raises(shmq.Full):
        queue.put(b"new")

    held.ack()
    assert queue.stats().delayed == 1


def test_drop_oldest_makes_room_in_bytes_too(broker: Broker) -> None:
    queue = broker.create_queue(
        "jobs", arena_bytes=65_536, max_message_bytes=40_000, overflow="drop-oldest"
    )
    for number in range(20):
        queue.put(bytes([number]) * 10_000)

    queue.put(b"\xff" * 40_000)

    kept = lease_all(queue)
    assert kept[-1].body == b"\xff" * 40_000
    assert all(message.body[0] >= 10 for message in kept)


def test_a_put_that_does_not_fit_even_so_drops_nothing(broker: Broker) -> None:
    queue = broker.create_queue(
        "jobs", arena_bytes=65_536, max_message_bytes=40_000, overflow="drop-oldest"
    )
    queue.put(bytes(30_000))
    held = queue.get()
    queue.put_many(range(5))

    with pytest.raises(shmq.Full):
        queue.put(bytes(40_000))

    assert drain(queue) == [0, 1, 2, 3, 4]
    assert queue.stats().dropped == 0
    held.ack()


def test_drop_oldest_never_waits_and_never_raises_while_something_is_visible(
    broker: Broker,
) -> None:
    queue = broker.create_queue("jobs", capacity=4, overflow="drop-oldest")

    for number in range(100):
        queue.put(number)

    assert drain(queue) == [96, 97, 98, 99]
    assert queue.stats().dropped == 96


def test_an_existing_queue_is_accepted_with_one_warning_that_lists_the_differences(
    broker: Broker, connect: Connect
) -> None:
    broker.create_queue("jobs", capacity=10, ttl=5)

    broker.ensure_queue("jobs", ttl=5)
    with pytest.warns(shmq.OptionsWarning) as warned:
        jobs = broker.ensure_queue("jobs", capacity=20, ttl=5)
    connect().ensure_queue("jobs", capacity=30)

    assert jobs.options.capacity == 10
    [only] = warned
    text = str(only.message)
    assert text.startswith("queue 'jobs' exists with other options: capacity is 10, not 20; it is")
    assert "if_different='accept'" in text
    assert only.filename == __file__


def test_other_options_are_accepted_silently_where_that_is_asked_for(broker: Broker) -> None:
    broker.create_queue("jobs", capacity=10)

    found = broker.ensure_queue("jobs", if_different="accept", capacity=20)
    assert found.options.capacity == 10


def test_streams_and_exchanges_with_other_options_are_warned_of_too(broker: Broker) -> None:
    broker.create_stream("clicks", partitions=2)
    broker.create_exchange("logs", "topic")

    with pytest.warns(shmq.OptionsWarning, match="stream 'clicks' .*partitions is 2, not 3"):
        assert broker.ensure_stream("clicks", partitions=3).partitions == 2
    with pytest.warns(shmq.OptionsWarning, match="exchange 'logs' .*kind is 'topic', not 'fanout'"):
        assert broker.ensure_exchange("logs", "fanout").kind == "topic"


def test_a_queue_with_other_options_than_those_given_is_refused_where_that_is_asked_for(
    broker: Broker,
) -> None:
    broker.create_queue("jobs", capacity=10, ttl=5, overflow="block")

    with pytest.raises(shmq.QueueExists) as raised:
        broker.ensure_queue("jobs", if_different="refuse", capacity=20, ttl=None, priorities=3)

    assert raised.value.differences == {"capacity": (20, 10), "ttl": (None, 5.0)}
    assert "'jobs'" in str(raised.value)
    assert "capacity is 10, not 20" in str(raised.value)
    assert "ttl is 5.0, not None" in str(raised.value)
    assert "use it as is, or delete it first" in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).differences == raised.value.differences


@pytest.mark.parametrize(
    "given", [{}, {"capacity": 10}, {"ttl": 5}, {"retry_delay": 1 / 3, "dead_letter": "jobs.dlq"}]
)
def test_a_queue_that_is_as_given_is_attached_to(broker: Broker, given: dict[str, Any]) -> None:
    broker.create_queue("jobs", capacity=10, ttl=5, retry_delay=1 / 3).put(b"x")

    with broker.ensure_queue("jobs", if_different="refuse", **given) as jobs:
        assert jobs.get_nowait().body == b"x"


def test_a_queue_that_is_new_has_what_is_given(broker: Broker) -> None:
    with broker.ensure_queue("jobs", if_different="refuse", retry_delay=1 / 7) as jobs:
        assert jobs.options.retry_delay == pytest.approx(1 / 7)


def test_what_is_done_with_other_options_is_one_of_three_words(broker: Broker) -> None:
    for ensure in (broker.ensure_queue, broker.ensure_stream, broker.ensure_exchange):
        with pytest.raises(shmq.InvalidOption, match=r"if_different='drop'.*warn.*accept"):
            ensure("x", if_different="drop")  # type: ignore[arg-type]
    assert (broker.list_queues(), broker.list_streams(), broker.list_exchanges()) == ([], [], [])


def test_a_time_is_the_same_to_the_nanosecond(broker: Broker) -> None:
    broker.create_queue("jobs", retry_delay=1 / 3)

    broker.create_queue("jobs", retry_delay=1 / 3)
    with pytest.raises(shmq.QueueExists) as raised:
        broker.create_queue("jobs", retry_delay=0.333)

    assert raised.value.differences == {"retry_delay": (0.333, pytest.approx(1 / 3))}
