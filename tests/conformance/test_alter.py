"""Options of a queue that change while it is in use.

Other levels: c/test_segment.c (the two copies), c/test_alter.c (sizes), system/cli/test_alter.py,
system/processes/test_alter.py, prove/recovery/test_recovery.py, prove/crash (the scenarios `alter`,
`grow`, `grow_with_groups` and `shrink`).
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import shmq
from shmq import Broker
from shmq.api.options import QueueOptions, options_of
from tests.support.waiting import eventually

from .conftest import Connect
from .tools import LATER, drain, in_thread, lease_all, outcome, putter_asleep

pytestmark = pytest.mark.refused_by_clusters

#: Another value for each option, than that of a new queue.
OTHERS: dict[str, Any] = {
    "capacity": 10,
    "arena_bytes": 64 << 20,
    "max_message_bytes": 1000,
    "visibility_timeout": 5.5,
    "max_deliveries": None,
    "error_bytes": 0,
    "dead_letter": None,
    "ttl": 60.0,
    "dead_letter_ttl": 60.0,
    "on_expired": "drop",
    "priorities": 4,
    "retry_delay": 0.0,
    "retry_delay_max": 7.0,
    "dedupe_window": 10.0,
    "overflow": "block",
    "durability": "snapshot",
    "snapshot_interval": 7.0,
    "confirm": "disk",
    "expires": 60.0,
    "auto_delete": True,
    "exclusive": True,
}
ALTERED = [name for name, row in options_of(QueueOptions).items() if row.changed_by]
FIXED = [name for name, row in options_of(QueueOptions).items() if row.fixed]


def test_each_option_can_be_altered_or_says_why_not() -> None:
    assert sorted([*ALTERED, *FIXED]) == sorted(options_of(QueueOptions)) == sorted(OTHERS)


@pytest.mark.parametrize("name", [name for name in ALTERED if name not in {"confirm", "expires"}])
def test_an_option_is_altered_alone_and_for_all(
    broker: Broker, connect: Connect, name: str
) -> None:
    jobs = broker.create_queue("jobs")
    before = jobs.options.as_dict()

    altered = connect().alter_queue("jobs", **{name: OTHERS[name]})

    assert altered.as_dict() == {**before, name: OTHERS[name]} != before
    assert connect().queue("jobs").options == altered
    assert broker.alter_queue("jobs", **{name: before[name]}).as_dict() == before
    assert jobs.options.as_dict() == before


def test_how_long_a_queue_may_be_unused_is_altered_if_it_was_limited(broker: Broker) -> None:
    broker.create_queue("brief", expires=60)
    broker.create_queue("jobs")

    assert broker.alter_queue("brief", expires=600).expires == 600
    with pytest.raises(shmq.InvalidOption, match=r"expires=9 .*counts its consumers; create"):
        broker.alter_queue("jobs", expires=9)
    assert broker.queue("jobs").options.expires is None


@pytest.mark.parametrize("name", FIXED)
def test_an_option_that_is_fixed_says_why_and_what_to_do(broker: Broker, name: str) -> None:
    jobs = broker.create_queue("jobs")
    before = jobs.options

    with pytest.raises(shmq.InvalidOption, match=r"queue 'jobs' .*unchanged") as raised:
        broker.alter_queue("jobs", **{name: OTHERS[name], "max_deliveries": 9})

    assert options_of(QueueOptions)[name].fixed in str(raised.value)
    assert f"{name}={OTHERS[name]!r} (it has " in str(raised.value)
    assert broker.queue("jobs").options == before


def test_all_options_that_are_fixed_are_named(broker: Broker) -> None:
    broker.create_queue("jobs")

    with pytest.raises(shmq.InvalidOption, match=r"priorities=1 .*; dedupe_window=7 .*create"):
        broker.alter_queue("jobs", ttl=9, dedupe_window=7, priorities=1)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"max_deliveries": 0}, shmq.InvalidOption),
        ({"max_deliveries": 65_535}, shmq.InvalidOption),
        ({"max_deliveries": "9"}, TypeError),
        ({"max_deliveries": True}, TypeError),
        ({"max_deliveries": 2.0}, TypeError),
        ({"error_bytes": -1}, shmq.InvalidOption),
        ({"error_bytes": 4097}, shmq.InvalidOption),
        ({"error_bytes": True}, TypeError),
        ({"error_bytes": "x"}, TypeError),
        ({"ttl": 0}, shmq.InvalidOption),
        ({"ttl": math.nan}, shmq.InvalidOption),
        ({"ttl": math.inf}, shmq.InvalidOption),
        ({"ttl": "5s"}, TypeError),
        ({"visibility_timeout": None}, TypeError),
        ({"visibility_timeout": -1}, shmq.InvalidOption),
        ({"overflow": "drop"}, shmq.InvalidOption),
        ({"overflow": b"block"}, TypeError),
        ({"max_message_bytes": (16 << 20) + 1}, shmq.InvalidOption),
        ({"max_message_bytes": 1 << 70}, shmq.InvalidOption),
        ({"confirm": "disk"}, shmq.InvalidOption),
        ({"on_expired": ""}, shmq.InvalidOption),
        ({"capacity": 0}, shmq.InvalidOption),
        ({"capacity": -1}, shmq.InvalidOption),
        ({"capacity": 1 << 24}, shmq.InvalidOption),
        ({"capacity": 1 << 64}, shmq.InvalidOption),
        ({"capacity": 16 * 16_384 + 1}, shmq.InvalidOption),
        ({"capacity": True}, TypeError),
        ({"capacity": "x"}, TypeError),
        ({"capacity": None}, TypeError),
        ({"arena_bytes": 0}, shmq.InvalidOption),
        ({"arena_bytes": 4095}, shmq.InvalidOption),
        ({"arena_bytes": 1 << 64}, shmq.InvalidOption),
        ({"arena_bytes": (256 << 20) + 1}, shmq.InvalidOption),
        ({"arena_bytes": True}, TypeError),
        ({"arena_bytes": 1e9}, TypeError),
        ({"arena_bytes": b"x"}, TypeError),
        ({"max_delivery": 9}, shmq.InvalidOption),
        ({"a" * 1_000_000: 9}, shmq.InvalidOption),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_alters_nothing(
    broker: Broker, given: dict[str, Any], error: type[Exception]
) -> None:
    jobs = broker.create_queue("jobs")
    before = jobs.options

    with pytest.raises(error, match=next(iter(given))[:100]):
        broker.alter_queue("jobs", **{"retry_delay": 9, **given})

    assert broker.queue("jobs").options == before


def test_nothing_is_altered_by_nothing(broker: Broker) -> None:
    options = broker.create_queue("jobs", capacity=50, ttl=9).options

    assert broker.alter_queue("jobs") == options
    assert broker.alter_queue("jobs", capacity=50, ttl=9) == options


def test_it_returns_the_options_as_the_queue_has_them(broker: Broker) -> None:
    jobs = broker.create_queue("jobs")
    altered = broker.alter_queue("jobs", retry_delay=1e-10, retry_delay_max=7, ttl=True + 1)
    assert repr(altered) == repr(jobs.options)
    assert altered.retry_delay == 0


def test_only_a_queue_that_exists_is_altered(broker: Broker) -> None:
    with pytest.raises(shmq.NoSuchQueue, match="jobs"):
        broker.alter_queue("jobs", ttl=9)
    with pytest.raises(shmq.InvalidName):
        broker.alter_queue("a/b", ttl=9)
    assert broker.queue_names() == []


def test_a_task_alters_a_queue(broker: Broker) -> None:
    jobs = broker.create_queue("jobs")
    altered = asyncio.run(broker.aalter_queue("jobs", ttl=9.0))
    assert (altered.ttl, jobs.options.ttl) == (9.0, 9.0)
    with pytest.raises(shmq.InvalidOption, match="priorities"):
        asyncio.run(broker.aalter_queue("jobs", priorities=4))
    with pytest.raises(shmq.NoSuchQueue, match="absent"):
        asyncio.run(broker.aalter_queue("absent", ttl=9.0))


def test_the_ttl_is_that_of_later_puts(broker: Broker) -> None:
    jobs = broker.create_queue("jobs", on_expired="drop")
    jobs.put(b"old")

    broker.alter_queue("jobs", ttl=0.01)
    jobs.put(b"new")

    eventually(lambda: jobs.stats().dropped_expired == 1, "the later message has expired")
    assert drain(jobs) == [b"old"]


def test_the_limit_of_deliveries_is_that_of_the_next_failure(broker: Broker) -> None:
    jobs = broker.create_queue("jobs", max_deliveries=1, retry_delay=0)
    jobs.put(b"x")
    first = jobs.get_nowait()

    broker.alter_queue("jobs", max_deliveries=2)
    first.nack(0)
    second = jobs.get_nowait()
    second.nack(0)

    assert jobs.empty()
    assert broker.queue("jobs.dlq").get_nowait().body == b"x"


def test_a_smaller_limit_of_bytes_is_of_later_puts(broker: Broker) -> None:
    jobs = broker.create_queue("jobs")
    jobs.put(b"x" * 100)

    broker.alter_queue("jobs", max_message_bytes=10)

    with pytest.raises(shmq.MessageTooLarge):
        broker.queue("jobs").put(b"x" * 100)
    assert jobs.get_nowait().body == b"x" * 100


def test_a_put_to_a_full_queue_does_as_its_options_say_now(broker: Broker) -> None:
    jobs = broker.create_queue("jobs", capacity=2)
    jobs.put_many([b"a", b"b"])

    broker.alter_queue("jobs", overflow="drop-oldest")
    jobs.put(b"c")
    assert [message.body for message in jobs.peek(9)] == [b"b", b"c"]

    broker.alter_queue("jobs", overflow="block")
    putting = in_thread(broker.queue("jobs").put, b"d")
    putter_asleep(jobs)
    broker.alter_queue("jobs", overflow="reject")
    with pytest.raises(shmq.Full):
        broker.queue("jobs").put(b"e")
    for message in lease_all(jobs):
        message.ack()
    outcome(putting)
    assert jobs.get(timeout=LATER).body == b"d"


def test_a_put_that_waits_for_room_goes_on_once_the_queue_grows(
    broker: Broker, connect: Connect
) -> None:
    jobs = broker.create_queue("jobs", capacity=2, overflow="block")
    jobs.put_many([b"a", b"b"])
    putting = in_thread(broker.queue("jobs").put, b"c")
    putter_asleep(jobs)

    assert connect().alter_queue("jobs", capacity=3).capacity == 3

    outcome(putting)
    with pytest.raises(shmq.Full, match="3 messages"):
        connect().queue("jobs").put(b"d", block=False)
    assert jobs.stats().capacity == 3
    assert drain(jobs) == [b"a", b"b", b"c"]


def test_the_room_for_bodies_grows_for_handles_from_before(
    broker: Broker, connect: Connect
) -> None:
    jobs = broker.create_queue("jobs", arena_bytes=8192, max_message_bytes=4096)
    other = connect().queue("jobs")
    bodies = [bytes([number]) * 4000 for number in range(32)]
    jobs.put_many(bodies[:2])
    with pytest.raises(shmq.Full):
        jobs.put(bodies[2])

    altered = broker.alter_queue("jobs", arena_bytes=16 * 8192)

    jobs.put_many(bodies[2:])
    assert altered.max_message_bytes == 4096
    assert jobs.stats().arena_bytes == altered.arena_bytes == 16 * 8192
    assert drain(other) == bodies


@pytest.mark.parametrize(("name", "most"), [("capacity", 320), ("arena_bytes", 65_536)])
def test_a_queue_cannot_outgrow_its_memory(broker: Broker, name: str, most: int) -> None:
    jobs = broker.create_queue("jobs", capacity=20, arena_bytes=4096)
    before = jobs.options

    with pytest.raises(
        shmq.InvalidOption,
        match=rf"'jobs' is unchanged: {name}={most + 1} is more than {most}.*create a larger queue",
    ):
        broker.alter_queue("jobs", ttl=9, **{name: most + 1})  # type: ignore[arg-type]

    assert broker.queue("jobs").options == before
    assert getattr(broker.alter_queue("jobs", **{name: most}), name) == most  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "least"), [("capacity", 1), ("arena_bytes", 4096)])
def test_a_queue_shrinks_once_it_is_empty(broker: Broker, name: str, least: int) -> None:
    jobs = broker.create_queue("jobs", capacity=20, arena_bytes=64 << 10, max_message_bytes=1000)
    jobs.put_many([b"x" * 1000] * 20)
    before = jobs.options

    with pytest.raises(shmq.InvalidOption, match=rf"unchanged: its 20 messages.*{name}={least}"):
        broker.alter_queue("jobs", ttl=9, **{name: least})  # type: ignore[arg-type]
    assert broker.queue("jobs").options == before
    assert len(drain(jobs)) == 20

    broker.alter_queue("jobs", **{name: least})  # type: ignore[arg-type]
    jobs.put(b"x" * 1000)
    assert jobs.put_many([b"x" * 1000] * 4, block=False) == (0 if name == "capacity" else 3)


def test_an_arena_must_hold_the_largest_message(broker: Broker) -> None:
    jobs = broker.create_queue("jobs", max_message_bytes=1 << 20)

    with pytest.raises(shmq.InvalidOption, match=r"arena_bytes=524288 is less .*1048576"):
        broker.alter_queue("jobs", arena_bytes=1 << 19)
    altered = broker.alter_queue("jobs", arena_bytes=1 << 19, max_message_bytes=1 << 19)
    assert altered.arena_bytes == 1 << 19 == jobs.options.max_message_bytes


def test_groups_and_ids_outlive_growth(broker: Broker) -> None:
    jobs = broker.create_queue("jobs", capacity=16, dedupe_window=60)
    for number in range(16):
        jobs.put(number, group=f"g{number % 8}", dedupe_id=str(number))

    broker.alter_queue("jobs", capacity=160)

    for number in range(120):
        jobs.put(number, group=f"g{number % 60}", dedupe_id=str(number))
    taken = lease_all(jobs)
    assert sorted(message.body for message in taken) == [*range(8), *range(16, 60), *range(68, 76)]
    for message in taken:
        message.ack()
    assert sorted(message.body for message in lease_all(jobs)) == [*range(8, 16), *range(76, 120)]


def test_two_that_alter_different_options_at_once_both_do(broker: Broker, connect: Connect) -> None:
    jobs = broker.create_queue("jobs")
    others = [connect(), connect()]

    def alter(other: Broker, name: str) -> None:
        for value in range(1, 51):
            other.alter_queue("jobs", **{name: value})  # type: ignore[arg-type]

    done = [
        in_thread(alter, other, name)
        for other, name in zip(others, ("max_deliveries", "ttl"), strict=True)
    ]
    for each in done:
        outcome(each)

    found = broker.queue("jobs").options
    assert (found.max_deliveries, found.ttl) == (50, 50.0)
    assert jobs.name == "jobs"


def test_an_ensured_queue_is_altered_where_that_is_asked_for(
    broker: Broker, connect: Connect
) -> None:
    broker.create_queue("jobs", max_deliveries=3, ttl=9)

    with connect().ensure_queue("jobs", if_different="alter", max_deliveries=9) as jobs:
        assert (jobs.options.max_deliveries, jobs.options.ttl) == (9, 9.0)
    with pytest.raises(shmq.InvalidOption, match="priorities=9"):
        broker.ensure_queue("jobs", if_different="alter", max_deliveries=4, priorities=9)
    with broker.ensure_queue("new", if_different="alter", capacity=9) as new:
        assert new.options.capacity == 9
    assert broker.queue("jobs").options.max_deliveries == 9


def test_exchanges_are_not_altered_to_ensure_them(broker: Broker) -> None:
    broker.create_queue("jobs")
    broker.create_exchange("events", "fanout")
    broker.alter_queue("jobs", ttl=9)

    with pytest.raises(shmq.ExchangeExists, match="kind is 'fanout', not 'topic'"):
        broker.ensure_exchange("events", "topic", if_different="alter")


def test_a_dead_letter_queue_stays_one(broker: Broker) -> None:
    broker.create_queue("jobs")

    with pytest.raises(shmq.InvalidOption, match=r"'jobs\.dlq'.*delivery limit.*'jobs'"):
        broker.alter_queue("jobs.dlq", max_deliveries=3)
    assert broker.alter_queue("jobs.dlq", visibility_timeout=9).visibility_timeout == 9


def test_a_dead_letter_queue_must_hold_what_its_queue_takes(broker: Broker) -> None:
    broker.create_queue("small", arena_bytes=1 << 20, max_deliveries=None, dead_letter=None)
    broker.create_queue("jobs", dead_letter="small", max_message_bytes=1000)

    with pytest.raises(shmq.InvalidOption, match="dead_letter='small': its arena_bytes"):
        broker.alter_queue("jobs", max_message_bytes=2 << 20)
    assert broker.alter_queue("jobs", max_message_bytes=2000).max_message_bytes == 2000


def test_a_dead_letter_queue_stays_large_enough(broker: Broker) -> None:
    broker.create_queue("jobs", arena_bytes=1 << 20)

    with pytest.raises(shmq.InvalidOption, match=r"'jobs\.dlq': its arena_bytes=65536 cannot hold"):
        broker.alter_queue("jobs.dlq", arena_bytes=1 << 16, max_message_bytes=9)
    assert broker.alter_queue("jobs.dlq", arena_bytes=2 << 20).arena_bytes == 2 << 20


def test_the_empty_dead_letter_queue_of_an_altered_queue_goes_with_it(broker: Broker) -> None:
    broker.create_queue("jobs")
    broker.alter_queue("jobs", visibility_timeout=9)

    broker.delete_queue("jobs")

    assert broker.queue_names() == []


def test_a_queue_of_its_own_client_is_altered(broker: Broker, connect: Connect) -> None:
    mine = broker.create_queue("mine", exclusive=True)

    assert broker.alter_queue("mine", ttl=9).ttl == 9
    assert mine.options.ttl == 9
