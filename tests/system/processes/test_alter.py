"""Processes that alter the options of one queue at the same time."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import shmq
from tests.support.processes import Start, is_sound

ROUNDS = 100


def alter(pipe: Connection, namespace: str, names: tuple[str, str]) -> None:
    """Give both options the same value, again and again."""
    with shmq.connect(namespace) as broker:
        for value in range(1, ROUNDS + 1):
            options: dict[str, Any] = dict.fromkeys(names, value)
            broker.alter_queue("q", **options)
    pipe.send("done")
    pipe.recv()


def test_both_alterations_survive_and_no_reader_sees_half_of_one(
    queue: shmq.Queue, namespace: str, start: Start
) -> None:
    with shmq.connect(namespace) as broker:
        broker.alter_queue("q", ttl=ROUNDS, dead_letter_ttl=ROUNDS, max_deliveries=1, retry_delay=1)
        children = [
            start(alter, namespace, names)
            for names in (("ttl", "dead_letter_ttl"), ("max_deliveries", "retry_delay"))
        ]

        found = queue.options
        for _ in range(20_000):
            found = queue.options
            assert found.ttl == found.dead_letter_ttl
            assert found.max_deliveries == found.retry_delay

        assert [child.hear() for child in children] == ["done", "done"]
        found = queue.options
        assert (found.ttl, found.max_deliveries) == (ROUNDS, ROUNDS)
        is_sound(queue)
