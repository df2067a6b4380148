"""A queue filled with messages of one size, to be written to disk and recovered."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import shmq
from bench.disk.confirmed import LEAST, LOOK
from bench.disk.writer import QUEUE
from bench.machine import now
from bench.stage import PATIENCE, Failed, Stage

#: Bytes of the number at the front of a body.
WIDTH = 8


def arena(size: int, count: int) -> int:
    """Bytes of arena that the bodies take, with some margin."""
    return LEAST + (size + size // 4 + 256) * count


def fill(stage: Stage, name: str, size: int, count: int) -> None:
    """Put all messages; each begins with its number."""
    stage.meet()
    filler = _filler(size)
    with shmq.connect(name) as broker:
        queue = broker.queue(QUEUE)
        for first in range(0, count, LOOK):
            numbers = range(first, min(count, first + LOOK))
            bodies = [number.to_bytes(WIDTH, "little") + filler for number in numbers]
            if queue.put_many(bodies) != len(bodies):
                raise Failed("the queue had no room for what it holds")


def journaled(stage: Stage, name: str) -> None:
    """Return once the journal has everything."""
    stage.meet()
    end = time.monotonic() + PATIENCE
    with shmq.connect(name) as broker:
        queue = broker.queue(QUEUE)
        while queue.stats().journal_lag:
            if time.monotonic() > end:
                raise Failed(f"the journal is {queue.stats().journal_lag} messages behind")
            time.sleep(0.02)


def recover(stage: Stage, name: str, data: Path) -> int:
    """The time until the queue is recovered, in ns, without Python's imports."""
    from shmq.disk.persistence.process import Persistence

    stage.meet()
    begun = now()
    Persistence(name, data).recover()
    return now() - begun


def look(stage: Stage, name: str, size: int, count: int) -> None:
    """Check that all messages are there, whole and in order, at the front of the queue."""
    stage.meet()
    filler = _filler(size)
    at = 0
    with shmq.connect(name) as broker:
        queue: Any = broker.queue(QUEUE)
        while at < count:
            found = queue.get_many(min(LOOK, count - at), block=False)
            if not found:
                raise Failed(f"{at} messages of {count} came from the disk")
            for message in found:
                body = message.body
                if body[:WIDTH] != at.to_bytes(WIDTH, "little") or body[WIDTH:] != filler:
                    raise Failed(f"message {at} came from the disk with other bytes")
                at += 1


def _filler(size: int) -> bytes:
    return random.Random(size).randbytes(size - WIDTH)
