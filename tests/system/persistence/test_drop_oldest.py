"""Queues that drop their oldest messages, and have to tell a journal of it first."""

from __future__ import annotations

import pytest

import shmq
from tests.support.writer_process import Persister

pytestmark = pytest.mark.prove


def test_a_queue_that_drops_makes_room_once_its_journal_has_what_was_dropped(
    namespace: str, persister: Persister
) -> None:
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("d", capacity=2, overflow="drop-oldest", durability="journal")
        persister.follows(queue)
        for number in range(20):
            queue.put(number)

        assert [message.body for message in queue.get_many(5)] == [18, 19]
        with pytest.raises(shmq.Full):  # nothing can be dropped
            queue.put(20)
