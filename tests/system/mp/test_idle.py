"""Processes that wait for an object of shmq.mp: they do not wake while nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from shmq.mp import JoinableQueue, Queue
from tests.support.processes import Start, sleep_undisturbed

#: Seconds for which wake-ups are counted, and the most that may be there for each process; one that
#: looks every 50 ms has more than ten times as many.
COUNTED = 1.25
MOST = 4

WAITS: dict[str, Callable[[Any, Any], object]] = {
    "get": lambda empty, full: empty.get(),
    "get in time": lambda empty, full: empty.get(True, 3600),
    "put": lambda empty, full: full.put(1),
    "join": lambda empty, full: full.join(),
}


def test_nobody_wakes_while_nothing_happens(start: Start) -> None:
    empty, full = Queue(), JoinableQueue(1)
    full.put(0)

    def work(pipe: Connection, how: str) -> None:
        pipe.send("begins")
        WAITS[how](empty, full)

    children = [start(work, how) for how in WAITS]
    for child in children:
        child.hear()

    sleep_undisturbed([child.pid for child in children], COUNTED, MOST)
    for child in children:
        child.kill()
