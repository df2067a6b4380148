"""Queues that end by themselves: `expires`, `auto_delete` and `exclusive`.

Other levels: system/server/test_temporary_queues.py, system/processes/test_temporary_queues.py,
system/persistence/test_temporary_queues.py.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from shmq.client.local.queue import LocalQueue
from tests.support.waiting import eventually

from .conftest import Connect
from .tools import LATER, MOMENT, SOON, drain, in_thread, in_time, outcome

ENDS: list[dict[str, Any]] = [{"auto_delete": True}, {"exclusive": True}]

CONSUMES: dict[str, Callable[[Queue], Any]] = {
    "get": lambda queue: queue.get(timeout=0),
    "get_many": lambda queue: queue.get_many(2, block=False),
    "get_batch": lambda queue: queue.get_batch(2, block=False),
    "get_packed": lambda queue: queue.get_packed(2, block=False),
    "where": lambda queue: queue.get(timeout=0, where="priority = 1"),
    "consume": lambda queue: list(queue.consume(timeout=0)),
    "bodies": lambda queue: list(queue.bodies(timeout=0)),
    "lease_run": lambda queue: queue.bulk().lease_run(2),
}


def be_consumer(queue: Queue, how: str = "get") -> None:
    """Consume from the empty queue: from now on the handle is a consumer."""
    with contextlib.suppress(shmq.Empty):
        CONSUMES[how](queue)


def make_short_lived(broker: Broker, use: Callable[[Queue], object] = repr) -> Queue:
    """A queue that ends soon, of which ``use`` was made before."""

    def make() -> Queue:
        queue = broker.create_queue("q", expires=SOON, dead_letter=None)
        use(queue)
        return queue

    return in_time(make, (shmq.NoSuchQueue, shmq.QueueDeleted))


def gone(broker: Broker, name: str) -> None:
    """Return once the queue is gone, without a look that deletes it."""
    eventually(lambda: name not in broker.queue_names(), f"queue {name!r} goes")


# ---- auto_delete ----


@pytest.mark.parametrize("how", CONSUMES)
def test_it_goes_when_its_last_consumer_closes_its_handle(connect: Connect, how: str) -> None:
    broker = connect()
    made = broker.create_queue("q", auto_delete=True)
    consumers = [connect().queue("q"), connect().queue("q")]
    for consumer in consumers:
        be_consumer(consumer, how)

    consumers[0].close()
    assert [each.name for each in broker.list_queues()] == ["q"]
    consumers[1].close()

    gone(broker, "q")
    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("q")
    with pytest.raises((shmq.QueueDeleted, shmq.NoSuchQueue)):
        made.put(b"")


def test_it_stays_until_it_has_had_a_consumer_and_keeps_what_is_put(connect: Connect) -> None:
    with connect() as producer:
        producer.create_queue("q", auto_delete=True).put(b"1")
    broker = connect()
    assert [each.name for each in broker.list_queues()] == ["q"]
    assert drain(broker.queue("q")) == [b"1"]


def test_a_handle_that_only_puts_does_not_keep_it(connect: Connect) -> None:
    broker = connect()
    queue = broker.create_queue("q", auto_delete=True)
    producer = connect().queue("q")
    producer.put(b"1")
    be_consumer(queue)

    queue.close()

    gone(broker, "q")


def test_it_goes_when_the_broker_of_its_consumer_is_closed(connect: Connect) -> None:
    broker = connect()
    with connect() as other:
        be_consumer(other.create_queue("q", auto_delete=True))

    gone(broker, "q")


def test_it_can_be_made_anew_and_is_bound_to_nothing(broker: Broker) -> None:
    exchange = broker.create_exchange("e", "fanout")
    with broker.create_queue("q", auto_delete=True) as queue:
        exchange.bind("q")
        be_consumer(queue)
    gone(broker, "q")

    made = broker.create_queue("q")

    assert exchange.bindings() == []
    assert drain(made) == []


def test_a_waiting_producer_is_told_that_it_went(connect: Connect) -> None:
    broker = connect()
    queue = broker.create_queue("q", auto_delete=True, capacity=1, overflow="block")
    producer = connect().queue("q")
    be_consumer(queue)
    producer.put(b"1")
    put = in_thread(producer.put, b"2", timeout=LATER)
    eventually(lambda: queue.stats().waiting_put > 0 or put.done(), "the producer waits")

    queue.close()

    with pytest.raises((shmq.QueueDeleted, shmq.NoSuchQueue)):
        outcome(put)


# ---- expires ----


def test_a_queue_without_a_consumer_goes_after_its_time(broker: Broker) -> None:
    make_short_lived(broker)

    eventually(lambda: broker.list_queues() == [], "the queue goes")

    with pytest.raises(shmq.NoSuchQueue):
        broker.queue("q")


def test_it_is_not_found_by_the_one_that_opens_it_too_late(broker: Broker) -> None:
    queue = make_short_lived(broker)

    def is_missing() -> bool:
        try:
            broker.queue("q").close()
        except shmq.NoSuchQueue:
            return True
        return False

    eventually(is_missing, "the queue is not found")
    with pytest.raises((shmq.QueueDeleted, shmq.NoSuchQueue)):
        queue.put(b"")


def test_a_consumer_keeps_it_and_its_time_begins_when_it_leaves(broker: Broker) -> None:
    queue = make_short_lived(broker, be_consumer)
    with contextlib.suppress(shmq.NoSuchQueue):  # it may have gone before it was opened
        broker.create_queue("passed", expires=SOON, dead_letter=None)

    eventually(lambda: len(broker.list_queues()) == 1, "its time has passed")
    queue.put(b"1")
    assert drain(queue) == [b"1"]
    queue.close()

    eventually(lambda: broker.list_queues() == [], "the queue goes")


@pytest.mark.parametrize("method", ["create_queue", "ensure_queue"])
def test_its_time_begins_anew_when_it_is_declared_again(broker: Broker, method: str) -> None:
    declare = functools.partial(getattr(broker, method), "q", expires=MOMENT, dead_letter=None)

    def keep() -> None:
        end = time.monotonic() + 1.5 * MOMENT
        queue = declare()
        while time.monotonic() < end:
            declare().close()
        queue.put(b"1")  # it is another queue by now if one came too late

    in_time(keep, (shmq.NoSuchQueue, shmq.QueueDeleted))


# ---- exclusive ----


def test_only_its_owner_may_open_it_and_the_refusal_names_the_owner(connect: Connect) -> None:
    owner, other = connect(), connect()
    queue = owner.create_queue("q", exclusive=True)
    be_consumer(queue)

    if isinstance(queue, LocalQueue):
        assert other.queue("q").qsize() == 0  # the process is the owner
        return
    for attempt in (other.queue, other.ensure_queue, other.create_queue):
        with pytest.raises(shmq.Forbidden, match="'q' is exclusive to connection"):
            attempt("q")
    with pytest.raises(shmq.Forbidden, match="'q' is exclusive to connection"):
        other.create_queue("q", exclusive=True)


def test_its_owner_may_open_it_and_declare_it_again(broker: Broker) -> None:
    broker.create_queue("q", exclusive=True).put(b"1")

    assert broker.queue("q").qsize() == 1
    assert broker.ensure_queue("q", exclusive=True).qsize() == 1
    assert broker.create_queue("q", exclusive=True).qsize() == 1
    with pytest.raises(shmq.QueueExists, match="capacity"):
        broker.create_queue("q", exclusive=True, capacity=7)


def test_it_goes_when_its_owner_closes_its_broker(connect: Connect) -> None:
    broker = connect()
    with connect() as owner:
        exchange = owner.create_exchange("e", "fanout")
        queue = owner.create_queue("q", exclusive=True)
        exchange.bind("q")
        exchange.publish(b"1")
        assert drain(queue) == [b"1"]

    gone(broker, "q")
    assert broker.exchange("e").bindings() == []


def test_others_put_into_it_by_an_exchange(connect: Connect) -> None:
    owner, other = connect(), connect()
    queue = owner.create_queue("q", exclusive=True)
    other.create_exchange("e", "fanout").bind("q")

    assert other.exchange("e").publish(b"1").delivered == 1
    assert drain(queue) == [b"1"]


def test_others_send_requests_to_it_by_its_name(connect: Connect) -> None:
    owner, other = connect(), connect()
    owner.create_queue("q", exclusive=True)
    in_thread(owner.serve, "q", lambda message: message.body * 2)

    assert other.request("q", b"ab", LATER).body == b"abab"


@pytest.mark.parametrize("durability", ["snapshot", "journal"])
def test_an_exclusive_queue_is_not_durable(broker: Broker, durability: Any) -> None:
    with pytest.raises(shmq.InvalidOption, match=f"exclusive=True.*{durability}"):
        broker.create_queue("q", exclusive=True, durability=durability)
    assert broker.queue_names() == []


# ---- dead letters ----


@pytest.mark.parametrize("ends", ENDS)
def test_it_has_no_dead_letter_queue_unless_one_is_named(
    broker: Broker, ends: dict[str, Any]
) -> None:
    assert broker.create_queue("q", **ends).options.dead_letter is None
    assert broker.create_queue("r", dead_letter="r.dlq", **ends).options.dead_letter == "r.dlq"
    letters = broker.queue("r.dlq").options
    assert (letters.auto_delete, letters.exclusive, letters.expires) == (False, False, None)


def test_its_own_dead_letter_queue_goes_with_it_if_it_is_empty(broker: Broker) -> None:
    for name in ("empty", "full"):
        queue = broker.create_queue(name, auto_delete=True, dead_letter=f"{name}.dlq")
        queue.put(b"1")
        message = queue.get(timeout=LATER)
        if name == "full":
            message.reject()
            eventually(lambda: broker.queue("full.dlq").qsize() == 1, "the letter is there")
        else:
            message.ack()
        queue.close()

    eventually(lambda: broker.queue_names() == ["full.dlq"], "both queues go")


def test_a_dead_letter_queue_of_another_name_stays(broker: Broker) -> None:
    with broker.create_queue("q", auto_delete=True, dead_letter="letters") as queue:
        be_consumer(queue)

    eventually(lambda: broker.queue_names() == ["letters"], "the queue goes")


# ---- publishing ----


def test_a_publish_goes_on_without_a_queue_whose_time_has_passed(broker: Broker) -> None:
    exchange = broker.create_exchange("e", "fanout")
    make_short_lived(broker, lambda _: exchange.bind("q"))
    stays = broker.create_queue("stays")
    exchange.bind("stays")

    eventually(lambda: exchange.publish(b"1").delivered == 1, "it publishes to one queue")

    assert [each.target for each in exchange.bindings()] == ["stays"]
    assert "q" not in broker.queue_names()
    assert stays.qsize() > 0
