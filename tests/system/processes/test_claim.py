"""The claim to a queue: at most one process has it, for as long as it lives."""

from __future__ import annotations

from multiprocessing.connection import Connection

import shmq
from shmq.client.local.queue import LocalQueue
from tests.support.processes import Start, drain


def claimed(queue: shmq.Queue) -> bool:
    assert isinstance(queue, LocalQueue)
    return queue.claim()


def claim(pipe: Connection, namespace: str, name: str) -> None:
    """Say whether this process got the claim, and keep it until killed."""
    queue = shmq.connect(namespace).queue(name)
    while True:
        pipe.send(claimed(queue))
        pipe.recv()


def claim_and_lease(pipe: Connection, namespace: str) -> None:
    queue = shmq.connect(namespace).queue("q")
    message = queue.get_nowait()
    pipe.send((claimed(queue), message.body))
    pipe.recv()


def test_it_is_one_process_that_has_the_claim(
    queue: shmq.Queue, namespace: str, start: Start
) -> None:
    assert claimed(queue)
    assert claimed(queue)  # a holder can claim it again

    assert not start(claim, namespace, "q").hear()


def test_the_claim_passes_on_with_the_death_of_its_holder(
    queue: shmq.Queue, namespace: str, start: Start
) -> None:
    first, second = (start(claim, namespace, "q", method="spawn") for _ in range(2))
    said = [first.hear(), second.hear()]
    assert sorted(said) == [False, True]
    holder, other = (first, second) if said[0] else (second, first)

    holder.kill()
    other.tell()

    assert other.hear()
    assert not claimed(queue)


def test_the_next_holder_of_the_claim_finds_what_the_dead_one_had(
    queue: shmq.Queue, namespace: str, start: Start
) -> None:
    queue.put_many([1, 2, 3])
    child = start(claim_and_lease, namespace)
    assert child.hear() == (True, 1)
    assert not claimed(queue)

    child.kill()

    assert claimed(queue)
    assert drain(queue) == [1, 2, 3]


def test_the_child_of_a_fork_does_not_have_its_parents_claim(
    queue: shmq.Queue, namespace: str, start: Start
) -> None:
    assert claimed(queue)

    child = start(claim, namespace, "q")

    assert not child.hear()


def test_other_handles_that_come_and_go_leave_the_claim_alone(
    queue: shmq.Queue, broker: shmq.Broker, namespace: str, start: Start
) -> None:
    assert claimed(queue)

    with shmq.connect(namespace) as other:
        other.queue("q").put(b"x")
        other.create_queue("more")
        other.delete_queue("more")
    broker.list_queues()

    assert not start(claim, namespace, "q").hear()


def test_queues_are_claimed_one_by_one(
    queue: shmq.Queue, broker: shmq.Broker, namespace: str, start: Start
) -> None:
    broker.create_queue("other")
    assert claimed(queue)

    assert start(claim, namespace, "other").hear()
