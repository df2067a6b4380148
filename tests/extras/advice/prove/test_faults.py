"""Each setting as it is advised, and set otherwise: the fault that the advice names is found."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq.extras.advice.report import Advice, advise
from shmq.extras.advice.workload import Workload
from tests.prove.recovery.tools import lose
from tests.support.memory_loss import bring_back
from tests.support.waiting import eventually
from tests.support.workloads import GOLDEN
from tests.support.writer_process import WriterProcess, running_writer

_NUMBERS = itertools.count()


def advice_for(name: str, **others: Any) -> Advice:
    """The advice for a workload of the table, with ``others`` of its answers."""
    answers = next(one.answers for one in GOLDEN if one.name == name)
    return advise(Workload.of({**answers, **others}), cores=8)


def fault_of(advice: Advice, setting: str) -> str:
    return next(one.fault for one in advice.settings if one.name == setting)


@dataclasses.dataclass
class Shop:
    """Makes queues by advice, with some options set otherwise."""

    broker: shmq.Broker

    def queue(self, advice: Advice, **wrong: Any) -> shmq.Queue:
        return self.broker.create_queue(f"q{next(_NUMBERS)}", **{**advice.options, **wrong})


@pytest.fixture
def shop(broker: shmq.Broker) -> Shop:
    return Shop(broker)


def leased_by_two(queue: shmq.Queue, prefetch: int, messages: int) -> tuple[int, int]:
    """How many messages a second consumer gets while the first works on one; how many wait."""
    queue.put_many(range(messages))
    with queue.consume(prefetch=prefetch, timeout=0.05) as first:
        hand = next(first)
        others = queue.get_many(messages, block=False)
        waiting = queue.stats().in_flight - 1 - len(others)
        hand.ack()
        for one in others:
            one.ack()
    return len(others), waiting


def test_prefetch_times_a_hundred_keeps_messages_from_idle_consumers(shop: Shop) -> None:
    advice = advice_for("e-mails")
    got, waiting = leased_by_two(shop.queue(advice), advice["prefetch"], 50)
    assert (got, waiting) == (49, 0)
    got, waiting = leased_by_two(shop.queue(advice), advice["prefetch"] * 100, 50)
    assert (got, waiting) == (0, 49)
    assert "messages leased that wait, while others are idle" in fault_of(advice, "prefetch")


def filled(queue: shmq.Queue, messages: int) -> int:
    """How many of so many messages are taken before the queue refuses one."""
    for number in range(messages):
        try:
            queue.put(number, block=False)
        except shmq.Full:
            return number
    return messages


def test_the_capacity_holds_an_outage_and_a_tenth_of_it_refuses(shop: Shop) -> None:
    advice = advice_for("e-mails")
    coming = int(advice.plan.backlog)
    assert filled(shop.queue(advice), coming) == coming
    less = advice["capacity"] // 10
    assert filled(shop.queue(advice, capacity=less), coming) == less
    assert "puts are refused" in fault_of(advice, "capacity")


def test_the_arena_holds_the_largest_bodies_and_a_tenth_of_it_does_not(shop: Shop) -> None:
    advice = advice_for("e-mails", body_p50=20_000, body_p99=20_000, rate=20, peak_rate=20)
    body, coming = bytes(20_000), int(advice.plan.backlog)
    for wrong, held in (({}, True), ({"arena_bytes": advice["arena_bytes"] // 10}, False)):
        with shop.queue(advice, **wrong) as queue:
            try:
                for _ in range(coming):
                    queue.put(body, block=False)
            except shmq.Full:
                assert not held and queue.qsize() < queue.options.capacity
            else:
                assert held
            queue.purge()
    assert "although the capacity is not reached" in fault_of(advice, "arena_bytes")


def test_a_bad_message_is_a_dead_letter_or_comes_back_for_ever(shop: Shop) -> None:
    advice = advice_for("uploads of users, of which some are broken")
    queue = shop.queue(advice)
    for_ever = shop.queue(advice, max_deliveries=None)
    for one in (queue, for_ever):
        one.put("broken")
        for _ in range(advice["max_deliveries"]):
            one.get(timeout=30).nack(delay=0)
    assert (queue.qsize(), queue.stats().dead_lettered) == (0, 1)
    assert (for_ever.qsize(), for_ever.stats().dead_lettered) == (1, 0)
    assert "comes back for ever" in fault_of(advice, "max_deliveries")


def test_without_a_back_off_all_retries_are_spent_at_once(shop: Shop) -> None:
    advice = advice_for("e-mails")
    queue, hasty = shop.queue(advice), shop.queue(advice, retry_delay=0)
    for one in (queue, hasty):
        one.put("the server is down")
        while one.qsize():
            one.get(block=False).nack()
    assert (queue.stats().delayed, queue.stats().dead_lettered) == (1, 0)
    assert (hasty.stats().delayed, hasty.stats().dead_lettered) == (0, 1)
    assert "spent before the outage is over" in fault_of(advice, "retry_delay")


def test_a_repeated_put_is_dropped_within_the_window_alone(shop: Shop) -> None:
    advice = advice_for("payments by account")
    advice.options.update(durability="memory", confirm="memory")
    queue, hasty = shop.queue(advice), shop.queue(advice, dedupe_window=0.001)

    def pay(one: shmq.Queue) -> bool:
        return one.put({"payment": 1}, group="account 7", dedupe_id="payment 1").duplicate

    assert [pay(queue), pay(queue), pay(hasty)] == [False, True, False]
    eventually(lambda: not pay(hasty), "the window has passed")
    assert (queue.qsize(), queue.stats().deduped) == (1, 1)
    assert hasty.qsize() == 2
    assert "is a second message" in fault_of(advice, "dedupe_window")


@pytest.mark.parametrize("name", ["one tenant has half of the load", "a total order over hosts"])
def test_without_a_group_two_consumers_work_on_one_key(shop: Shop, name: str) -> None:
    advice = advice_for(name)
    queue, without = shop.queue(advice), shop.queue(advice)
    for number in range(2):
        queue.put(number, group="key 7")
        without.put(number)
    assert len(queue.get_many(2, block=False)) == 1
    assert len(without.get_many(2, block=False)) == 2
    assert fault_of(advice, "group").startswith("none: ")


def test_what_is_of_no_use_any_more_is_dropped_or_worked_on_first(shop: Shop) -> None:
    advice = advice_for("prices of the last second", useful_for=0.05)
    queue, without = shop.queue(advice), shop.queue(advice, ttl=None)
    for one in (queue, without):
        one.put("old")
    eventually(lambda: queue.stats().dropped_expired == 1, "the old price has expired")
    for one in (queue, without):
        one.put("new")
    assert queue.get(block=False).body == "new"
    assert without.get(block=False).body == "old"
    assert "work on old messages first" in fault_of(advice, "ttl")


@pytest.mark.parametrize(("producers", "left"), [("request", range(3)), ("frames", range(1, 4))])
def test_a_full_queue_does_what_its_producers_need(shop: Shop, producers: str, left: range) -> None:
    advice = advice_for("e-mails", producers=producers)
    queue = shop.queue(advice, capacity=3)
    refused = 0
    for number in range(4):
        try:
            queue.put(number)
        except shmq.Full:
            refused += 1
    assert [message.body for message in queue.get_many(4)] == [*left]
    assert refused == (producers == "request")


def test_a_stream_keeps_its_records_and_a_small_ring_does_not(broker: shmq.Broker) -> None:
    advice = advice_for("positions of the last minutes", rate=500, replay_for=60, keys=1)
    records = 60 * 500
    for wrong, kept in (({}, True), ({"ring_bytes": 1 << 20}, False)):
        stream = broker.create_stream(f"s{next(_NUMBERS)}", **{**advice.options, **wrong})
        for _ in range(0, records, 1000):
            stream.append_many([bytes(100)] * 1000, keys=["one"] * 1000)
        first_kept = sum(stream.earliest(number) for number in range(advice["partitions"]))
        assert (first_kept == 0) is kept
        broker.delete_stream(stream.name)
    assert "before their retention is over" in fault_of(advice, "ring_bytes")


@pytest.fixture
def writer_process(namespace: str) -> Iterator[WriterProcess]:
    with running_writer(namespace) as running:
        yield running


@pytest.mark.parametrize("survives", ["machine", "process"])
def test_a_journal_brings_back_what_memory_loses_with_the_machine(
    broker: shmq.Broker, writer_process: WriterProcess, survives: str
) -> None:
    advice = advice_for("orders to five departments", survives=survives)
    broker.create_queue("orders", **advice.options).put("paid")
    assert (advice["durability"] == "journal") is (survives == "machine")
    writer_process.stop()
    lose(writer_process.namespace)
    bring_back(writer_process.namespace, writer_process.folder)
    with shmq.connect(writer_process.namespace) as after:
        left = [one.body for one in after.ensure_queue("orders").get_many(2, timeout=0)]
    assert left == (["paid"] if survives == "machine" else [])
    if left:
        assert "gone after a restart" in fault_of(advice, "durability")
