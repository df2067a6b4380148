"""How long the partitions of a group are not served after a member is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

import shmq
from bench.machine import now
from bench.row import Contestant, Figure, Role, Row, Turn, at_most
from bench.scratch import scratch
from bench.stage import Failed

TIME = Figure("time", "ms", higher_is_better=False)
PARTITIONS = 8
#: After this many polls without the result, the measurement gives up.
MOST_POLLS = 100_000


class Rebalance(Contestant):
    """Kills a member while records are appended to its partitions."""

    role: Role = "shmq"

    def __init__(self, label: str) -> None:
        self.label = label

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            stream = broker.create_stream("s", PARTITIONS, ring_bytes=1 << 20)
            with stream.group("g", "sticky", session_timeout=60).join() as survivor:
                yield lambda _: {TIME.key: _kill(stream, survivor) / 1e6}


def _kill(stream: shmq.Stream, survivor: shmq.Member) -> int:
    """The time from the kill until a record of each of its partitions is read, in ns."""
    victim = os.fork()
    if victim == 0:
        _be_a_member(stream)
    try:
        _until(survivor, lambda: _served(stream) == PARTITIONS // 2)
        lost = set(range(PARTITIONS)) - survivor.assignment
        begun = now()
    finally:
        os.kill(victim, signal.SIGKILL)
    for partition in lost:
        stream.append(b"x", partition=partition)
    _until(survivor, lambda: not lost, lost)
    taken = now() - begun
    os.waitpid(victim, 0)
    survivor.commit()
    return taken


def _served(stream: shmq.Stream) -> int:
    """How many partitions the newest of two members has."""
    members = stream.group("g").members()
    return len(members[-1].partitions) if len(members) == 2 else 0


def _until(survivor: shmq.Member, done: Callable[[], bool], lost: set[int] | None = None) -> None:
    for _ in range(MOST_POLLS):
        for records in survivor.poll(timeout=0.001):
            if lost is not None:
                lost.discard(records.partition)
        if done():
            return
    raise Failed("the partitions of a member that was killed are not served")


def _be_a_member(stream: shmq.Stream) -> NoReturn:
    try:
        member = stream.group("g").join()
        while True:
            member.poll(timeout=1)
            member.commit()
    finally:
        os._exit(1)


def row() -> Row:
    """Two members and eight partitions."""
    contestants = [Rebalance("shmq, 8 partitions, 2 members")]
    return Row(
        key="rebalance",
        title="Time until the partitions of a killed group member are served",
        contestants=contestants,
        figures=[TIME],
        bars=[at_most(contestants[0].label, 100, "ms", TIME.key)],
        limit="the report of the death by the kernel, and the wake-up of the other member",
    )
