"""Kill a process after every store to shared memory of what it does, and see what survives.

``python -m tests.prove.crash RUNNER SCENARIO``, under a build with crash points: with that build
and this project's root on PYTHONPATH. For k = 1, 2, … a forked victim is killed right after its
k-th store, until it gets through. After each death the survivor, which is the runner, continues
with what is there, and counts everything.

A runner is a module of this package. It has ``SCENARIOS``, ``MODULES``, whose stores are counted,
and ``survive(name, broker, play)``: one death, judged, which returns whether the victim got
through. ``play(prepare)`` forks the victim; what ``prepare()`` returns there is what it does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import shmq
from shmq.api.names import SHM
from tests.prove.crash.death import WATCHDOG, Broken, Prepare


def run(runner: Any, name: str) -> int:
    """All deaths of one scenario; returns how many points there were."""
    return sum(_points(runner, name, module) for module in runner.MODULES)


def _points(runner: Any, name: str, module: Any) -> int:
    """The deaths at the stores of one module."""
    for point in itertools.count(1):
        play = functools.partial(_act_in_a_fork, module.crash_at, point)
        try:
            with _own_broker() as broker:
                finished = runner.survive(name, broker, play)
        except BaseException as error:
            error.add_note(f"in {name!r}, killed after store {point} of {module.__name__}")
            raise
        if finished:
            break
    return point - 1


@contextlib.contextmanager
def _own_broker() -> Iterator[Any]:
    """A broker of a namespace that leaves nothing in shared memory."""
    namespace = f"crash-{os.getpid()}"
    with shmq.connect(namespace) as broker:
        yield broker
        for queue in reversed(broker.list_queues()):
            broker.delete_queue(queue.name)
        for stream in broker.list_streams():
            broker.delete_stream(stream.name)
    left = [entry for entry in os.listdir(SHM) if f"@{namespace}" in entry]
    if left:
        raise Broken(f"left in {SHM}: {left}")


def _act_in_a_fork(crash_at: Callable[[int], None], point: int, prepare: Prepare) -> bool:
    """Whether the victim finished; it died by the crash point if not."""
    victim = os.fork()
    if victim == 0:
        code = 3
        try:
            act = prepare()
            crash_at(point)
            act()
            crash_at(0)
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


def main() -> None:
    """Run the scenario that is named, and print how many points it has."""
    faulthandler.dump_traceback_later(WATCHDOG, exit=True)
    runner = importlib.import_module(f"tests.prove.crash.{sys.argv[1]}_runner")
    if not all(module.HAS_CRASHPOINTS for module in runner.MODULES):
        raise SystemExit("this build has no crash points: build with SHMQ_CRASHPOINTS=1")
    print(run(runner, sys.argv[2]))


if __name__ == "__main__":
    main()
