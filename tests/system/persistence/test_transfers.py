"""Moves between queues with journals wait for the writer, which can be stopped here."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import shmq
from shmq import Queue
from shmq.client.local.queue import LocalQueue
from tests.support.waiting import eventually
from tests.support.writer_process import WriterProcess

pytestmark = pytest.mark.prove

#: How often a test may be too slow to stop the writer before it has written a message.
ATTEMPTS = 100


@pytest.fixture
def queue(namespace: str, writer_process: WriterProcess) -> Iterator[Queue]:
    """A queue that is written, with its dead letters."""
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("q", durability="journal")
        writer_process.follows(queue)
        writer_process.follows(broker.queue("q.dlq"))
        yield queue


@pytest.fixture
def dead_letter_queue(namespace: str, queue: Queue) -> Iterator[Queue]:
    with shmq.connect(namespace) as broker:
        yield broker.queue("q.dlq")


def _is_frozen_in_time(writer_process: WriterProcess, queue: Queue, sequence: int) -> bool:
    """Freeze the writer; whether it had not yet written that message. Else let it go on."""
    assert isinstance(queue, LocalQueue)
    writer_process.freeze()
    if queue.journal.synced < sequence:
        return True
    writer_process.thaw()
    return False


def _dies(queue: Queue, dead_letter_queue: Queue) -> None:
    queue.get().reject()
    eventually(lambda: dead_letter_queue.qsize() == 1, "it is among the dead letters")


@contextlib.contextmanager
def _beside_the_frozen(writer_process: WriterProcess, work: Callable[[], object]) -> Iterator[None]:
    """Run ``work`` in a thread; it ends after the block, when the writer goes on."""
    thread = threading.Thread(target=work)
    try:
        thread.start()
        time.sleep(0.3)
        yield
    finally:
        writer_process.thaw()
    thread.join()


def test_a_letter_that_was_sent_back_and_dies_again_moves_once_it_is_written(
    queue: Queue, dead_letter_queue: Queue, writer_process: WriterProcess
) -> None:
    queue.put(b"poison")
    for _ in range(ATTEMPTS):
        _dies(queue, dead_letter_queue)
        assert queue.redrive() == 1
        message = queue.get()
        if _is_frozen_in_time(writer_process, queue, message.sequence):
            break
        message.nack()
    else:
        pytest.fail("the writer was quicker each time")
    with _beside_the_frozen(writer_process, message.reject):
        assert dead_letter_queue.qsize() == 0

    eventually(lambda: dead_letter_queue.qsize() == 1, "it is among the dead letters")


def test_letters_go_back_once_they_are_written(
    queue: Queue, dead_letter_queue: Queue, writer_process: WriterProcess
) -> None:
    queue.put(b"poison")
    for _ in range(ATTEMPTS):
        _dies(queue, dead_letter_queue)
        (letter,) = dead_letter_queue.peek()
        if _is_frozen_in_time(writer_process, dead_letter_queue, letter.sequence):
            break
        assert queue.redrive() == 1
    else:
        pytest.fail("the writer was quicker each time")
    with _beside_the_frozen(writer_process, queue.redrive):
        assert queue.qsize() == 0

    assert queue.qsize() == 1
