"""Deaths in a commit, which happens as a whole, or not at all.

A scenario is what the victim does, and which survivor is the first to look afterwards.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from shmq.client.local.transaction import LocalTransaction
from shmq.client.transaction.transaction_log import TransactionLog
from shmq.native import _core, _group, _stream
from tests.prove.crash.death import Broken, Play

MODULES = (_core, _stream, _group)
RING = 64 << 10
RECORDS = 4
#: What is found: records that came out, messages that did, the offset that is committed, and
#: messages that are still to be handled.
Found = tuple[int, int, int, int]
NOTHING: Found = (0, 0, 0, 1)
ALL: Found = (6, 3, RECORDS, 0)


class Stage:
    """The broker and what is in its namespace."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.source = broker.create_stream("source", 1, ring_bytes=RING)
        self.sink = broker.create_stream("sink", 2, ring_bytes=RING)
        self.work = broker.create_queue("work", capacity=10, dead_letter=None, max_deliveries=None)
        self.done = broker.create_queue("done", capacity=10, dead_letter=None, max_deliveries=None)
        self.group = self.source.group("g")
        self.source.append_many([b"%d" % n for n in range(RECORDS)], partition=0)
        self.work.put(b"work")

    def found(self) -> Found:
        """All messages and records, once all have looked. None is there twice."""
        for look in (self.group.members, self.work.tend, self.done.tend):
            look()
        came = [it.value for p in range(2) for it in self.sink.read(p, 0)]
        if len(came) != len(set(came)):
            raise Broken(f"a record came twice: {came}")
        left = len(self.work.get_many(10, block=False))
        return len(came), self.done.qsize(), self.group.committed()[0] or 0, left


def collect(stage: Stage) -> Callable[[], None]:
    """All that a transaction can have, up to its commit."""
    member = stage.group.join(timeout=0)
    transaction = stage.broker.transaction()
    for record in member:
        transaction.append("sink", b"from " + record.value, key=record.value)
    transaction.append_many("sink", [b"one", b"two"], partition=1)
    for message in stage.work.get_many(1, block=False):
        transaction.ack(stage.work, message)
    for n in range(3):
        transaction.put("done", b"%d" % n, group="g" if n else None)
    transaction.commit(member)
    finish: Callable[[], None] = transaction.finish
    return finish


def commit(stage: Stage) -> Callable[[], None]:
    return collect(stage)


def die(_: LocalTransaction, __: TransactionLog) -> None:
    """In the place of what follows the commit point."""
    os.kill(os.getpid(), signal.SIGKILL)


def settle(stage: Stage) -> Callable[[], None]:
    """What a process committed that died right behind the commit point."""
    victim = os.fork()
    if victim == 0:
        LocalTransaction._happen = die  # type: ignore[assignment, method-assign]
        collect(stage)()
        os._exit(1)
    os.waitpid(victim, 0)

    def act() -> None:
        stage.found()

    return act


#: What the victim does, of which `settle` has happened even if it does not get through.
ACTS: dict[str, Callable[[Stage], Callable[[], None]]] = {
    act.__name__: act for act in (commit, settle)
}

#: Who comes by first.
FIRST: dict[str, Callable[[Stage], object]] = {
    "group": lambda stage: stage.group.members(),
    "lease": lambda stage: stage.work.tend(),
    "copy": lambda stage: stage.done.tend(),
}

SCENARIOS = ["commit-group", "commit-lease", "commit-copy", "settle-lease"]


def survive(name: str, broker: Any, play: Play) -> bool:
    """One death, judged; True if the victim got through without dying."""
    act, first = name.split("-")
    stage = Stage(broker)
    finished = play(lambda: ACTS[act](stage))
    FIRST[first](stage)
    found = stage.found()
    allowed = {ALL} if finished or act == "settle" else {ALL, NOTHING}
    if found not in allowed:
        raise Broken(f"{found} is neither all nor nothing; allowed are {allowed}")
    again = stage.found()
    if again[:3] != found[:3] or again[3]:
        raise Broken(f"{found} has become {again}")
    return finished
