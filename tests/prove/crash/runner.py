"""Kill a process at every shared store of an operation, and see what survives.

Runs under a build with crash points: ``python runner.py SCENARIO``, with that build and
this project's root on PYTHONPATH. For k = 1, 2, … a
forked victim is killed right after its k-th store, until it gets through. After each
death the survivor goes on with the queue, and everything is counted.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
import traceback
from collections import Counter
from typing import Any

import shmq
from shmq.api.names import SHM
from shmq.native import _core
from tests.prove.crash.scenarios import SCENARIOS, Scenario, Stage, drain

LONGER_THAN_ANY_DELAY = 1000


class Broken(Exception):
    """A promise was not kept."""


def run(name: str) -> int:
    """All deaths of one scenario; returns how many points there were."""
    scenario = SCENARIOS[name]
    point = 1
    while True:
        try:
            if survive(scenario, point):
                return point - 1
        except BaseException as error:
            error.add_note(f"in scenario {name!r}, killed after store {point}")
            raise
        point += 1


def survive(scenario: Scenario, point: int) -> bool:
    """One death, judged; True if the victim got through without dying."""
    namespace = f"crash-{os.getpid()}"
    now = time.monotonic_ns()
    _core.set_clock(now)
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("q", **{"capacity": 200, "retry_delay": 0, **scenario.options})
        stage = Stage(broker=broker, queue=queue, now=now)
        scenario.prepare(stage)
        finished = act_in_a_fork(scenario, stage, point)
        judge(scenario, stage, finished)
        for name in [summary.name for summary in broker.list_queues()]:
            broker.delete_queue(name)
    left = [entry for entry in os.listdir(SHM) if f"@{namespace}" in entry]
    if left:
        raise Broken(f"left in {SHM}: {left}")
    return finished


def act_in_a_fork(scenario: Scenario, stage: Stage, point: int) -> bool:
    """Whether the victim finished; it died by the crash point if not."""
    victim = os.fork()
    if victim == 0:
        code = 3
        try:
            stage.queue.qsize()  # attaches this process
            scenario.victim(stage)
            _core.crash_at(point)
            scenario.act(stage)
            _core.crash_at(0)
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    _, status = os.waitpid(victim, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        return True
    raise Broken(f"the victim ended with status {status}")


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
    stage.sync()
    check_all(stage)
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
    names = [summary.name for summary in stage.broker.list_queues()]
    return [stage.broker.queue(name) for name in names]


def check_all(stage: Stage) -> None:
    for queue in queues_of(stage):
        queue.check()
        queue.close()


def drain_all(stage: Stage) -> list[bytes]:
    found = []
    for queue in queues_of(stage):
        queue.tend()
        found += drain(queue)
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
        raise Broken("somebody dead is counted as asleep")
    capacity = queue.options.capacity
    if queue.put_many([b"x"] * capacity, block=False) != capacity or not queue.full():
        raise Broken("a slot was lost")
    queue.purge()
    stage.sync()
    queue.check()


def main() -> None:
    faulthandler.dump_traceback_later(240, exit=True)
    if not _core.HAS_CRASHPOINTS:
        raise SystemExit("this build has no crash points: build with SHMQ_CRASHPOINTS=1")
    for name in sys.argv[1:] or SCENARIOS:
        print(f"{name}: {run(name)} points", flush=True)


if __name__ == "__main__":
    main()
