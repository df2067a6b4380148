"""From a queue of this host to a queue of a cluster."""

from __future__ import annotations

import multiprocessing
import os

import pytest

import shmq
from shmq.extras.nats.bridge import forward
from shmq.extras.nats.bridge.config import Forward
from shmq.extras.nats.bridge.forward import ForwardLane
from tests.support.bridge import PATIENCE, Bridged, take_all, wait_until

ORDERS = Forward(queue="orders")


def test_a_message_has_there_what_it_had_here(bridged: Bridged) -> None:
    queue = bridged.here.create_queue("orders", priorities=4)
    queue.put(
        {"n": 1},
        priority=3,
        headers={"kind": "new", "size": 7},
        correlation="c",
        reply_to="answers",
        ttl=600,
    )
    queue.put("text", group="g")
    queue.put(b"\x00\xff", codec="of-my-own")
    queue.put_packed(b"abcdef", 2)
    (numbers,) = bridged.drain(ORDERS)
    assert (numbers.sent, numbers.duplicates, numbers.lag_messages) == (4, 0, 0)
    found = {one.codec: one for one in take_all(bridged.there.queue("orders"), 4)}
    first = found["msgpack"]
    assert (first.body, first.priority) == ({"n": 1}, 3)
    assert first.headers == {"kind": "new", "size": 7}
    assert (first.correlation, first.reply_to) == ("c", "answers")
    assert 0 < first.properties["ttl"] <= 600_000
    assert (found["text"].body, found["text"].group) == ("text", "g")
    assert found["of-my-own"].body == b"\x00\xff"
    assert found["packed"].body == [b"ab", b"cd", b"ef"]
    assert queue.empty()


def test_the_queue_there_is_made_like_the_one_here(bridged: Bridged) -> None:
    bridged.here.create_queue("orders", priorities=5, capacity=123, visibility_timeout=7)
    bridged.drain(Forward(queue="orders", to="all-orders"))
    options = bridged.there.queue("all-orders").options
    assert (options.priorities, options.capacity, options.visibility_timeout) == (5, 123, 7)
    assert options.dedupe_window == 7200


def test_groups_keep_their_order(bridged: Bridged) -> None:
    queue = bridged.here.create_queue("orders")
    for number in range(300):
        queue.put(number, group=f"g{number % 3}")
    bridged.drain(ORDERS)
    found: dict[str | None, list[int]] = {}
    for one in take_all(bridged.there.queue("orders"), 300):
        found.setdefault(one.group, []).append(one.body)
    assert found == {f"g{at}": list(range(at, 300, 3)) for at in range(3)}


def die(_: object) -> bytes:
    os._exit(0)


def die_before_acknowledging(namespace: str, url: str) -> None:
    """A bridge that is gone between the cluster's answer and the acknowledgement here."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(forward, "_pack_receipts", die)
    with shmq.connect(namespace) as here, shmq.connect(url) as there:
        lane = ForwardLane(here, lambda: there, ORDERS)
        lane.open()
        lane.step(careful=False, patience=PATIENCE)


def test_what_was_published_before_a_death_is_dropped_there_and_no_delivery_is_counted(
    bridged: Bridged,
) -> None:
    queue = bridged.here.create_queue("orders", max_deliveries=1)
    queue.put_many(range(20))
    for _ in range(2):
        child = multiprocessing.get_context("spawn").Process(
            target=die_before_acknowledging, args=(bridged.namespace, bridged.url)
        )
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert queue.stats().in_flight == 20
    assert bridged.there.queue("orders").qsize() == 20
    (numbers,) = bridged.drain(ORDERS)
    assert (numbers.sent, numbers.duplicates) == (20, 20)
    found = take_all(bridged.there.queue("orders"), 20)
    assert sorted(one.body for one in found) == list(range(20))


def test_a_second_bridge_ends_the_first(bridged: Bridged) -> None:
    queue = bridged.here.create_queue("orders")
    with bridged.bridge(ORDERS, drain=False) as first:
        queue.put("a")
        wait_until(lambda: first.numbers()[0].sent == 1)
        with bridged.bridge(ORDERS, drain=False) as second:
            with pytest.raises(shmq.LeaseExpired, match=r"has taken over the leases"):
                first.wait(60)
            queue.put("b")
            wait_until(lambda: second.numbers()[0].sent == 1)


def test_a_queue_that_is_deleted_on_either_side_does_not_end_the_bridge(bridged: Bridged) -> None:
    queue = bridged.here.create_queue("orders")
    with bridged.bridge(ORDERS, drain=False) as running:
        queue.put("first")
        wait_until(lambda: running.numbers()[0].sent == 1)
        bridged.there.delete_queue("orders")
        queue.put("second")
        wait_until(lambda: running.numbers()[0].sent == 2)
        assert [one.body for one in take_all(bridged.there.queue("orders"), 1)] == ["second"]
        bridged.here.delete_queue("orders")
        bridged.here.create_queue("orders").put("third")
        wait_until(lambda: running.numbers()[0].sent == 3)
    assert [one.body for one in take_all(bridged.there.queue("orders"), 1)] == ["third"]


@pytest.mark.parametrize(
    ("size", "headers"), [(2 << 20, None), (1, {"a": "x" * 60_000})], ids=["body", "headers"]
)
def test_a_message_that_never_fits_there_is_a_dead_letter(
    bridged: Bridged, size: int, headers: dict[str, str] | None
) -> None:
    queue = bridged.here.create_queue("orders")
    queue.put(bytes(size), headers=headers)
    queue.put(b"small")
    (numbers,) = bridged.drain(ORDERS)
    assert (numbers.sent, numbers.refused) == (1, 1)
    assert [one.body for one in take_all(bridged.there.queue("orders"), 1)] == [b"small"]
    (dead,) = bridged.here.queue("orders.dlq").get_many(1)
    assert dead.dead is not None
    assert dead.dead.reason == "rejected"
    dead.ack()


def test_a_full_queue_there_holds_up_what_is_here_and_loses_nothing(bridged: Bridged) -> None:
    queue = bridged.here.create_queue("orders")
    target = bridged.there.create_queue("orders", capacity=10, dedupe_window=600)
    queue.put_many(range(30))
    found = []
    with bridged.bridge(ORDERS) as running:
        for _ in range(30):
            message = target.get(timeout=60)
            found.append(message.body)
            message.ack()
        assert running.wait(60)
    assert sorted(found) == list(range(30))


def test_a_queue_without_a_window_is_refused(bridged: Bridged) -> None:
    bridged.here.create_queue("orders")
    bridged.there.create_queue("orders")
    with (
        bridged.bridge(ORDERS) as running,
        pytest.raises(shmq.InvalidOption, match="'orders' of the cluster has dedupe_window=0"),
    ):
        running.wait(60)


def test_a_higher_priority_than_there_is_takes_the_highest(bridged: Bridged) -> None:
    queue = bridged.here.create_queue("orders", priorities=8)
    bridged.there.create_queue("orders", priorities=2, dedupe_window=600)
    queue.put("urgent", priority=7)
    bridged.drain(ORDERS)
    assert take_all(bridged.there.queue("orders"), 1)[0].priority == 1


def test_delayed_messages_are_forwarded_when_they_are_due(bridged: Bridged) -> None:
    queue = bridged.here.create_queue("orders")
    queue.put("later", delay=0.3)
    bridged.drain(ORDERS)
    assert [one.body for one in take_all(bridged.there.queue("orders"), 1)] == ["later"]
