"""Runs that are leased in a name: taken over, fenced, settled by epoch, released.

Other levels: prove/recovery/test_named_leases.py.
"""

from __future__ import annotations

import array
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue, Run

from .tools import next_message


def numbers(run: Run) -> list[int]:
    return array.array("Q", run.sequences).tolist()


def leased(queue: Queue, epoch: int, count: int, name: str = "query") -> tuple[shmq.Claim, Run]:
    claim = queue.bulk().take_over(name, settled=epoch - 1).claim
    run = queue.bulk().lease_run(count, claim=claim, epoch=epoch)
    assert len(run) == count
    return claim, run


def test_a_newer_claim_takes_the_same_messages_over(queue: Queue, other: Queue) -> None:
    for n in range(2000):
        queue.put(b"%d" % n, group=None if n % 4 else "abc"[n % 3])
    _, run = leased(queue, 7, 1500)
    taken = other.bulk().take_over("query", epoch=7)
    assert numbers(taken.run) == numbers(run)
    assert set(array.array("Q", taken.run.receipts)).isdisjoint(array.array("Q", run.receipts))
    assert (taken.settled, taken.returned) == (0, 0)
    assert other.bulk().ack_run(taken.run.receipts) == 0
    assert queue.stats().acked == 1500


def test_an_older_claim_is_void_at_once(queue: Queue, other: Queue) -> None:
    queue.put_many([b"x"] * 10)
    claim, run = leased(queue, 7, 6)
    assert queue.bulk().is_claimed(claim)
    taken = other.bulk().take_over("query", epoch=7)
    assert queue.bulk().extend_run(run.receipts, 100) == 6
    assert queue.bulk().return_run(run.receipts) == 6
    assert queue.bulk().ack_run(run.receipts) == 6
    for void in (
        lambda: queue.bulk().lease_run(1, claim=claim, epoch=8),
        lambda: queue.bulk().is_claimed(claim),
    ):
        with pytest.raises(shmq.LeaseExpired, match=r"has taken over the leases of 'query'.*stop"):
            void()
    assert other.bulk().extend_run(taken.run.receipts, 100) == 0
    assert queue.stats().in_flight == 6


def test_epochs_are_settled_leased_again_or_returned(queue: Queue) -> None:
    queue.put_many([b"x"] * 9)
    claim, _ = leased(queue, 7, 2)
    queue.bulk().lease_run(3, claim=claim, epoch=8)
    queue.bulk().lease_run(4, claim=claim, epoch=9)
    taken = queue.bulk().take_over("query", settled=7, epoch=8)
    assert (numbers(taken.run), taken.settled, taken.returned) == ([3, 4, 5], 2, 4)
    assert queue.stats().acked == 2
    message = queue.get(block=False)
    assert (message.sequence, message.delivery_count) == (6, 1)  # its lease was not counted
    assert queue.bulk().take_over("query", settled=8).settled == 3
    assert queue.bulk().take_over("query", settled=8).settled == 0


def test_leases_of_a_name_outlive_the_client(queue: Queue, connect: Any) -> None:
    queue.put_many([b"x"] * 5, group="g")
    broker = connect()
    _, run = leased(broker.queue(queue.name), 1, 4)
    broker.close()
    assert queue.stats().in_flight == 4
    assert queue.qsize() == 1
    assert queue.get_many(9, block=False) == []
    assert numbers(queue.bulk().take_over("query", epoch=1).run) == numbers(run)


def test_a_lease_that_ran_out_is_taken_over_unless_another_consumer_has_it(
    queue: Queue, other: Queue
) -> None:
    queue.put_many([b"x"] * 3)
    claim = queue.bulk().take_over("query").claim
    assert len(queue.bulk().lease_run(3, claim=claim, epoch=1, seconds=0.05)) == 3
    taken = next_message(other)
    assert taken.delivery_count == 2
    found = queue.bulk().take_over("query", epoch=1)
    assert len(found.run) == 2
    assert taken.sequence not in numbers(found.run)
    assert queue.bulk().is_claimed(found.claim)


def test_names_do_not_meet(queue: Queue) -> None:
    queue.put_many([b"x"] * 4)
    one, _ = leased(queue, 1, 2, "one")
    two, _ = leased(queue, 1, 2, "two")
    assert numbers(queue.bulk().take_over("one", epoch=1).run) == [1, 2]
    assert queue.bulk().is_claimed(two)
    assert numbers(queue.bulk().take_over("two", epoch=1).run) == [3, 4]
    with pytest.raises(shmq.LeaseExpired):
        queue.bulk().is_claimed(one)


def test_a_name_is_released(queue: Queue) -> None:
    queue.put_many([b"x"] * 5)
    claim, run = leased(queue, 1, 3)
    assert queue.bulk().release("query") == 3
    assert queue.qsize() == 5
    assert not queue.bulk().is_claimed(claim)
    assert queue.bulk().ack_run(run.receipts) == 3
    with pytest.raises(shmq.LeaseExpired, match="does not know the name 'query'"):
        queue.bulk().lease_run(1, claim=claim, epoch=2)
    assert len(queue.bulk().take_over("query", epoch=1).run) == 0
    assert queue.bulk().release("never") == 0


def test_the_holder_is_shown(queue: Queue) -> None:
    queue.put(b"x")
    leased(queue, 1, 1, "the-query")
    (lease,) = queue.leases()
    assert (lease.holder_name, lease.holder_pid) == ("the-query", 0)


def test_a_message_that_was_put_behind_is_not_of_the_run(queue: Queue) -> None:
    queue.put_many([b"x"] * 3, group="g")
    leased(queue, 1, 3)
    queue.put(b"first", group="g", priority=shmq.HIGH)
    assert numbers(queue.bulk().take_over("query", epoch=1).run) == [1, 2, 3]
    queue.bulk().take_over("query", settled=1)
    assert queue.get(block=False).body == b"first"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": ""}, "name='' must be 1 to 200 bytes"),
        ({"name": "x" * 201}, "must be 1 to 200 bytes"),
        ({"name": "q", "epoch": -1}, "epoch=-1"),
        ({"name": "q", "settled": 1 << 32}, "settled=4294967296"),
        ({"name": "q", "seconds": 0}, "seconds=0"),
    ],
)
def test_what_cannot_be_is_refused(queue: Queue, wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=why):
        queue.bulk().take_over(**wrong)
    claim = queue.bulk().take_over("q").claim
    with pytest.raises(shmq.InvalidOption, match="epoch=0"):
        queue.bulk().lease_run(1, claim=claim)


def test_as_many_names_hold_leases_as_a_queue_knows(broker: Broker) -> None:
    queue = broker.create_queue("many")
    queue.put_many([b"x"] * 65)
    for n in range(64):
        leased(queue, 1, 1, f"q{n}")
    with pytest.raises(shmq.Full, match="64 names hold leases in queue 'many'"):
        queue.bulk().take_over("one more")
    queue.bulk().take_over("q7", settled=1)
    assert queue.bulk().is_claimed(queue.bulk().take_over("one more").claim)
