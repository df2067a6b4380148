"""What a move waits for, where journals are written: with a writer that can be stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import shmq
from shmq import Queue
from tests.support.processes import eventually
from tests.support.writer_process import Persister

pytestmark = pytest.mark.prove


@pytest.fixture
def queue(namespace: str, persister: Persister) -> Iterator[Queue]:
    """A queue that is written, with its dead letters."""
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("q", durability="journal")
        persister.follows(queue)
        persister.follows(broker.queue("q.dlq"))
        yield queue


def test_a_letter_that_was_sent_back_and_dies_again_moves_once_it_is_written(
    namespace: str, queue: Queue, persister: Persister
) -> None:
    with shmq.connect(namespace) as broker:
        dead_letter_queues = broker.queue("q.dlq")
        queue.put(b"poison")
        queue.get().reject()
        assert queue.redrive() == 1
        message = queue.get()
        persister.freeze()
        try:
            rejecting = threading.Thread(target=message.reject)
            rejecting.start()
            time.sleep(0.3)
            assert dead_letter_queues.qsize() == 0
        finally:
            persister.thaw()
        rejecting.join()

        eventually(lambda: dead_letter_queues.qsize() == 1, "it is among the dead letters")


def test_letters_go_back_once_they_are_written(queue: Queue, persister: Persister) -> None:
    queue.put(b"poison")
    queue.get().reject()
    persister.freeze()
    try:
        sending = threading.Thread(target=queue.redrive)
        sending.start()
        time.sleep(0.3)
        assert queue.qsize() == 0
    finally:
        persister.thaw()
    sending.join()

    assert queue.qsize() == 1
