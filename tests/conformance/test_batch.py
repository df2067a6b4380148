"""get_batch: many bodies, leased and settled together."""

from __future__ import annotations

import time

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import LATER, SOON, drain, getter_asleep, in_thread, outcome

LARGE = 200_000


def test_a_batch_has_the_bodies_in_order_each_as_its_codec_has_it(queue: Queue) -> None:
    bodies = [b"bytes", "text", {"msg": ["pack"]}, b"", b"x" * LARGE, 5]
    queue.put_many(bodies)

    with queue.get_batch(10) as batch:
        assert batch.bodies == bodies
        assert list(batch) == bodies
        assert len(batch) == len(batch.receipts) == 6
    assert queue.stats().acked == 6


def test_a_batch_has_at_most_max_messages(queue: Queue) -> None:
    queue.put_many(range(10))

    sizes = [len(queue.get_batch(4)) for _ in range(3)]

    assert sizes == [4, 4, 2]
    assert queue.stats().in_flight == 10


def test_an_empty_queue_gives_an_empty_batch_once_the_time_is_up(queue: Queue) -> None:
    start = time.monotonic()

    batch = queue.get_batch(5, timeout=SOON)

    assert time.monotonic() - start >= SOON
    assert (len(batch), batch.bodies, batch.receipts) == (0, [], [])
    assert queue.get_batch(5, block=False).bodies == []
    assert batch.ack() == []


def test_get_batch_waits_for_the_first_message(queue: Queue, other: Queue) -> None:
    waiting = in_thread(lambda: queue.get_batch(5, timeout=PATIENCE).bodies)
    getter_asleep(other)

    other.put(b"x")

    assert outcome(waiting) == [b"x"]


def test_acknowledging_a_batch_ends_all_its_leases(queue: Queue) -> None:
    queue.put_many([1, 2, 3])
    batch = queue.get_batch(3)
    assert not batch.settled

    assert batch.ack() == []

    assert batch.settled
    assert batch.receipts == []
    assert batch.bodies == [1, 2, 3]
    assert (queue.stats().acked, queue.stats().in_flight) == (3, 0)


def test_a_batch_is_settled_once(queue: Queue) -> None:
    queue.put_many([1, 2])
    batch = queue.get_batch(2)
    batch.ack()

    assert batch.ack() == []
    assert batch.nack() == []
    assert queue.stats().acked == 2


def test_a_batch_that_is_nacked_is_there_again_in_its_order(queue: Queue) -> None:
    queue.put_many([1, 2, 3])

    assert queue.get_batch(2).nack(delay=0) == []

    assert [message.delivery_count for message in queue.get_many(3)] == [2, 2, 1]


def test_a_nack_of_a_batch_delays_it(queue: Queue) -> None:
    queue.put_many([1, 2])

    queue.get_batch(2).nack(delay=LATER)

    assert (queue.stats().delayed, queue.stats().nacked) == (2, 2)


def test_an_exception_returns_the_whole_batch(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=0)
    queue.put_many([1, 2])

    with pytest.raises(RuntimeError, match="no"), queue.get_batch(2):
        raise RuntimeError("no")

    assert drain(queue) == [1, 2]


def test_a_batch_that_was_settled_inside_the_block_stays_so(queue: Queue) -> None:
    queue.put_many([1, 2])

    with pytest.raises(RuntimeError), queue.get_batch(2) as batch:
        batch.ack()
        raise RuntimeError

    assert queue.stats().acked == 2


def test_a_receipt_of_a_batch_settles_its_message_alone_from_anywhere(
    queue: Queue, other: Queue
) -> None:
    queue.put_many([1, 2, 3])
    batch = queue.get_batch(3)
    receipts = batch.receipts

    other.ack(receipts[0])
    other.nack(receipts[1], delay=0)

    assert batch.ack() == receipts[:2]
    assert drain(queue) == [2]


def test_leases_that_ran_out_are_refused_when_a_batch_is_settled(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=LATER)
    queue.put_many([1, 2])
    batches = [queue.get_batch(1), queue.get_batch(1)]
    receipts = [batch.receipts for batch in batches]
    for (receipt,) in receipts:
        queue.extend(receipt, SOON)

    eventually(lambda: queue.stats().expired == 2, "the leases run out")

    assert [batches[0].ack(), batches[1].nack()] == receipts
    assert all(batch.settled and not batch.receipts for batch in batches)
    assert drain(queue) == [1, 2]


def test_a_lease_that_ran_out_within_a_batch_is_refused_alone(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=LATER)
    queue.put_many([1, 2])
    batch = queue.get_batch(2)
    first, _ = batch.receipts
    queue.extend(first, SOON)
    eventually(lambda: queue.stats().expired == 1, "the first lease runs out")

    assert batch.ack() == [first]
    assert queue.stats().acked == 1


def test_a_batch_takes_priorities_and_groups_as_get_does(queue: Queue) -> None:
    queue.put("low", priority=shmq.LOW)
    queue.put_many(["first of the group", "second of the group"], group="g")
    queue.put("plain")
    queue.put("high", priority=shmq.HIGH)

    batch = queue.get_batch(10)

    assert batch.bodies == ["high", "first of the group", "plain", "low"]
    batch.ack()
    assert drain(queue) == ["second of the group"]


def test_a_batch_that_was_returned_too_often_is_dead(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=2)
    queue.put_many(range(9))

    for _ in range(2):
        queue.get_batch(9).nack(delay=0)

    assert drain(broker.queue("jobs.dlq")) == list(range(9))


def malformed(queue: Queue) -> None:
    with queue.loan(20, codec="packed") as view:
        view[:] = b"x" * 20


def test_a_body_that_is_not_of_its_codec_stops_its_batch_and_names_its_receipt(
    queue: Queue,
) -> None:
    queue.put_many(["a", "b"])
    malformed(queue)
    queue.put("c")

    with pytest.raises(shmq.ShmqError, match=r"message 3 .* not packed: .*receipt \d+") as caught:
        queue.get_batch(10)

    assert queue.stats().in_flight == 1  # the others are there again
    queue.reject(int(str(caught.value).partition("receipt ")[2].partition(",")[0]))
    assert queue.get_batch(10).bodies == ["a", "b", "c"]
    assert queue.stats().dead_lettered == 1


def test_a_packed_batch_is_one_body_of_a_batch(queue: Queue) -> None:
    queue.put_packed(b"aabbb", [2, 3])
    queue.put(b"alone")

    assert queue.get_batch(5).bodies == [[b"aa", b"bbb"], b"alone"]


def test_a_batch_goes_with_its_handle(queue: Queue, connect: Connect) -> None:
    client = connect()
    queue.put_many(range(9))
    mine = client.queue(queue.name)
    batch = mine.get_batch(9)

    mine.close()

    with pytest.raises(shmq.ShmqError, match="closed"):
        batch.ack()
    assert drain(queue) == list(range(9))


@pytest.mark.parametrize("get", ["get_batch", "get_packed"])
@pytest.mark.parametrize("most", [1 << 31, 1 << 63, 1 << 70])
def test_max_may_be_more_than_there_can_be(queue: Queue, get: str, most: int) -> None:
    queue.put_many([b"1", b"2"])

    assert list(getattr(queue, get)(most)) == [b"1", b"2"]


@pytest.mark.parametrize("get", ["get_batch", "get_packed"])
def test_a_max_that_is_none_is_refused(queue: Queue, get: str) -> None:
    for wrong in (0, -5):
        with pytest.raises(shmq.InvalidOption, match=f"max={wrong}"):
            getattr(queue, get)(wrong)
    for untyped in ("5", 2.0, True, None):
        with pytest.raises(TypeError, match="max="):
            getattr(queue, get)(untyped)
    with pytest.raises(shmq.InvalidOption, match="timeout=-1"):
        getattr(queue, get)(5, timeout=-1)


def test_an_uncounted_nack_of_a_batch_returns_all_as_if_they_had_not_been_delivered(
    broker: Broker,
) -> None:
    queue = broker.create_queue("jobs", max_deliveries=1)
    queue.put_many(range(3))

    assert queue.get_batch(3).nack(counted=False) == []

    again = queue.get_many(3)
    assert [message.body for message in again] == [0, 1, 2]
    assert {message.delivery_count for message in again} == {1}
