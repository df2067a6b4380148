"""Dedupe: the second put of an id within the window is taken as done.

Other levels: c/test_dedupe.c, prove/crash/scenarios.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import shmq
from shmq import Broker, InvalidOption, Queue
from tests.support.waiting import eventually

from .conftest import Connect
from .tools import LATER, SOON, drain

MANY = 2000


@pytest.fixture
def window(broker: Broker) -> Queue:
    """A queue that remembers ids for longer than the test lasts."""
    return broker.create_queue("jobs", dedupe_window=LATER, capacity=64)


def test_the_second_put_of_an_id_is_taken_as_done_and_says_so(window: Queue) -> None:
    first = window.put(b"first", dedupe_id="one")
    window.put(b"between")

    second = window.put(b"second", dedupe_id="one")

    assert not first.duplicate
    assert second.duplicate
    assert second.sequence == first.sequence
    assert drain(window) == [b"first", b"between"]
    assert window.stats().deduped == 1


def test_an_id_is_known_to_every_client(connect: Connect, window: Queue) -> None:
    first = window.put(b"x", dedupe_id="one")

    second = connect().queue("jobs").put(b"x", dedupe_id="one")

    assert (second.duplicate, second.sequence) == (True, first.sequence)


def test_different_ids_are_different_messages(window: Queue) -> None:
    ids = ["", "a", "A", "a ", "é", "x" * 200, "x" * 199 + "y", "\x00"]
    for dedupe_id in ids[1:]:
        assert not window.put(dedupe_id, dedupe_id=dedupe_id).duplicate

    assert drain(window) == ids[1:]


def test_messages_without_an_id_are_never_duplicates(window: Queue) -> None:
    assert not any(window.put(b"same").duplicate for _ in range(5))
    assert window.qsize() == 5


@pytest.mark.parametrize("end", ["ack", "reject", "nack", "purge"])
def test_an_id_is_remembered_whatever_became_of_its_message(window: Queue, end: str) -> None:
    first = window.put(b"x", dedupe_id="one")
    message = window.get()
    if end == "purge":
        message.nack(delay=0)
        window.purge()
    elif end == "nack":
        message.nack(delay=LATER)
    else:
        getattr(message, end)()

    again = window.put(b"x", dedupe_id="one")

    assert (again.duplicate, again.sequence) == (True, first.sequence)


def test_an_id_is_forgotten_after_the_window(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dedupe_window=SOON)
    first = queue.put(b"x", dedupe_id="one")

    eventually(lambda: not queue.put(b"x", dedupe_id="one").duplicate, "the window passes")

    assert queue.qsize() == 2
    assert queue.get().sequence == first.sequence


def test_the_window_counts_from_the_first_put_and_no_duplicate_renews_it(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dedupe_window=SOON)
    queue.put(b"x", dedupe_id="one")

    duplicates = 0
    while queue.put(b"x", dedupe_id="one").duplicate:
        duplicates += 1

    assert queue.stats().deduped == duplicates
    assert queue.qsize() == 2


@pytest.mark.parametrize("body", [b"x", {"n": 1}, bytes(100_000)], ids=["bytes", "map", "large"])
def test_an_id_is_refused_by_a_queue_without_a_window(queue: Queue, body: shmq.api.Body) -> None:
    assert queue.options.dedupe_window == 0

    with pytest.raises(InvalidOption, match=r"dedupe_id='one'.*'q'.*dedupe_window=\d+"):
        queue.put(body, dedupe_id="one")
    assert queue.qsize() == 0
    assert not queue.put(b"x", dedupe_id=None).duplicate


#: Further puts with a dedupe id.
PUTS: dict[str, Callable[[Queue], object]] = {
    "aput": lambda queue: asyncio.run(queue.aput(b"x", dedupe_id="one")),
    "aput value": lambda queue: asyncio.run(queue.aput({"n": 1}, LATER, dedupe_id="one")),
    "put_packed": lambda queue: queue.put_packed(b"xy", 1, dedupe_id="one"),
    "loan": lambda queue: queue.loan(3, dedupe_id="one"),
    "pipeline": lambda queue: queue.pipeline().put(b"x", dedupe_id="one"),
}


@pytest.mark.parametrize("way", PUTS)
def test_every_put_refuses_an_id_without_a_window(queue: Queue, way: str) -> None:
    with pytest.raises(InvalidOption, match=r"dedupe_id='one'.*'q'.*dedupe_window=\d+"):
        PUTS[way](queue)
    assert queue.qsize() == 0


def test_a_duplicate_is_taken_as_done_even_by_a_full_queue(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dedupe_window=LATER, capacity=1)
    first = queue.put(b"x", dedupe_id="one")

    again = queue.put(b"x", dedupe_id="one")

    assert (again.duplicate, again.sequence) == (True, first.sequence)
    with pytest.raises(shmq.Full):
        queue.put(b"y", dedupe_id="two")


def test_a_put_that_was_refused_leaves_its_id_free(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dedupe_window=LATER, capacity=1, max_message_bytes=100)
    queue.put(b"in the way")
    with pytest.raises(shmq.Full):
        queue.put(b"x", dedupe_id="one")
    with pytest.raises(shmq.MessageTooLarge):
        queue.put(bytes(101), dedupe_id="two")
    drain(queue)

    for dedupe_id in ("one", "two"):
        assert not queue.put(b"x", dedupe_id=dedupe_id).duplicate
        drain(queue)


def test_a_loan_that_was_dropped_leaves_its_id_free(window: Queue) -> None:
    window.loan(3, dedupe_id="one").drop()

    assert not window.put(b"x", dedupe_id="one").duplicate


def test_a_loan_of_a_known_id_is_a_duplicate(window: Queue) -> None:
    first = window.put(b"x", dedupe_id="one")

    loan = window.loan(3, dedupe_id="one")
    loan.view[:] = b"abc"
    put = loan.commit()

    assert (put.duplicate, put.sequence) == (True, first.sequence)
    assert drain(window) == [b"x"]


def test_more_ids_than_messages_fit_are_remembered(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dedupe_window=LATER, capacity=MANY)
    first = [queue.put(number, dedupe_id=f"id-{number}").sequence for number in range(MANY)]
    drain(queue)

    again = [queue.put(number, dedupe_id=f"id-{number}") for number in range(MANY)]

    assert all(put.duplicate for put in again)
    assert [put.sequence for put in again] == first
    assert queue.empty()


def test_a_deduped_message_can_be_redriven(window: Queue) -> None:
    window.put(b"x", dedupe_id="one")
    window.get().reject()

    assert window.redrive() == 1

    assert drain(window) == [b"x"]
    assert window.put(b"x", dedupe_id="one").duplicate
