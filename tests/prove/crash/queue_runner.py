"""Deaths in the operations of a queue."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import shmq
from shmq.native import _core
from tests.prove.crash.death import Broken, Play
from tests.prove.crash.scenarios import SCENARIOS, Scenario, Stage, drain

MODULES = (_core,)

LONGER_THAN_ANY_DELAY = 1000


def survive(name: str, broker: Any, play: Play) -> bool:
    """One death, judged; True if the victim got through without dying."""
    scenario = SCENARIOS[name]
    now = time.monotonic_ns()
    _core.set_clock(now)
    queue = broker.create_queue("q", **{"capacity": 200, "retry_delay": 0, **scenario.options})
    stage = Stage(broker=broker, queue=queue, now=now)
    scenario.prepare(stage)

    def prepare() -> Callable[[], object]:
        stage.queue.qsize()  # attaches this process
        scenario.victim(stage)
        return lambda: scenario.act(stage)

    finished = play(prepare)
    judge(scenario, stage, finished)
    return finished


def judge(scenario: Scenario, stage: Stage, finished: bool) -> None:
    """Go on with the queue as a survivor would, then count everything."""
    queue = stage.queue
    try:
        queue.tend()
    except shmq.QueueDeleted:
        if not scenario.queue_may_go:
            raise
        make_anew(stage, finished)
        return
    check_all(stage)
    scenario.afterwards(stage)
    found = Counter(drain_all(stage))
    stage.later(LONGER_THAN_ANY_DELAY)
    found += Counter(drain_all(stage))
    compare(scenario, found, finished)
    check_nothing_leaked(stage)


def make_anew(stage: Stage, finished: bool) -> None:
    """The queue was deleted, perhaps half: its name is free, or it is deleted again."""
    with contextlib.suppress(shmq.NoSuchQueue):
        stage.broker.delete_queue("q")
        if finished:
            raise Broken("the queue was deleted, but is there")
    stage.queue = stage.broker.create_queue("q", capacity=200)
    stage.queue.put(b"x")
    if drain(stage.queue) != [b"x"]:
        raise Broken("the new queue does not work")


def queues_of(stage: Stage) -> list[Any]:
    return [stage.broker.queue(summary.name) for summary in stage.broker.list_queues()]


def check_all(stage: Stage) -> None:
    for queue in queues_of(stage):
        queue.check()
        queue.close()


def drain_all(stage: Stage) -> list[bytes]:
    found = []
    for queue in queues_of(stage):
        queue.tend()
        found += drain(queue)
        stage.sync()
        queue.check()
        queue.close()
    return found


def compare(scenario: Scenario, found: Counter[bytes], finished: bool) -> None:
    for body in scenario.kept:
        expect(body, found.pop(body, 0), {1})
    for body in scenario.added:
        expect(
            body,
            found.pop(body, 0),
            {1} if finished or scenario.options.get("dedupe_window") else {0, 1},
        )
    for body in scenario.removed:
        expect(body, found.pop(body, 0), {0} if finished else {0, 1})
    if found:
        raise Broken(f"out of nowhere: {found}")


def expect(body: bytes, times: int, allowed: set[int]) -> None:
    if times not in allowed:
        raise Broken(f"{body[:20]!r} was found {times} times, not {allowed}")


def check_nothing_leaked(stage: Stage) -> None:
    """An emptied queue takes as many messages, and bytes, as a new one."""
    queue = stage.queue
    numbers = queue.inspection.numbers()
    for count in ("depth", "delayed", "in_flight", "dying", "arena_used"):
        if numbers[count]:
            raise Broken(f"{count} is {numbers[count]} in an empty queue")
    if numbers["waiting_get"] or numbers["waiting_put"]:
        raise Broken("a dead process is counted as asleep")
    capacity = queue.options.capacity
    if queue.put_many([b"x"] * capacity, block=False) != capacity or not queue.full():
        raise Broken("a slot was lost")
    queue.purge()
    stage.sync()
    queue.check()
