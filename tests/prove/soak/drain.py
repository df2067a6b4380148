"""The end of a soak: what is left is taken, and nothing else may be."""

from __future__ import annotations

import functools
from typing import Any

import shmq
from shmq.extras.stress.journal import ACKED, GOT, Journal
from tests.prove.soak import workers
from tests.prove.soak.stops import insist


def drain(queue: Any, journal: Journal) -> None:
    """Take what is left, as a survivor would."""
    while True:
        timeout = 0.5 if insist(queue.stats).delayed else 0.0
        try:
            message = insist(functools.partial(queue.get, timeout=timeout))
        except shmq.Empty:
            if insist(queue.stats).delayed:
                continue
            return
        numbers = workers.numbers_of(message.body)
        workers.write_all(journal, GOT, numbers)
        insist(message.ack)
        workers.write_all(journal, ACKED, numbers)


def check(queue: Any) -> None:
    """The emptied queue is as good as new. Raises AssertionError, DamagedSegment."""
    insist(queue.check)
    stats = insist(queue.stats)
    left = (stats.depth, stats.delayed, stats.in_flight, stats.dying, stats.arena_used)
    assert left == (0, 0, 0, 0, 0), f"left behind in an emptied queue: {left}"
    assert (stats.waiting_get, stats.waiting_put) == (0, 0), "a dead process is counted as asleep"
    writer = queue.namespace.roles.writer_pid
    others = [each.pid for each in insist(queue.attachments) if each.pid != writer]
    assert len(others) == 1, "a dead process is counted as attached"
