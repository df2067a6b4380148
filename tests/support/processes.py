"""Real processes for the tests: children that run a function, and whole scripts."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import shmq
from shmq import Queue
from shmq.client.local.queue import LocalQueue
from tests.support.waiting import PATIENCE, eventually

ROOT = Path(__file__).resolve().parents[2]
SHM = Path("/dev/shm")

#: A visibility timeout that does not pass within a test, in seconds.
HOUR = 3600.0
#: The size in bytes of a body that is written and read in place, without a copy.
LARGE = 20_000


def of_threads(pid: int, file: str) -> dict[str, str]:
    """The text of that file of /proc for each thread of the process, by the thread's id."""
    texts = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            texts[task.name] = (task / file).read_text()
    return texts


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal, as proc(5) tells."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.split("\nSigCgt:")[1].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


def is_stopped(pid: int) -> bool:
    """Whether no thread of the process runs: a signal alone stops each a little later."""
    found = of_threads(pid, "stat").values()
    return all(text.rpartition(")")[2].split()[0] == "T" for text in found)


def _wake_ups(pid: int) -> dict[str, int]:
    """How often each thread of a process has slept so far."""
    return {
        thread: int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])
        for thread, text in of_threads(pid, "status").items()
    }


def _woken_within(seconds: float, pids: Collection[int]) -> dict[int, int]:
    """How often each of the processes wakes in that time."""
    before = {pid: _wake_ups(pid) for pid in pids}
    time.sleep(seconds)
    return {
        pid: sum(count - counts.get(thread, 0) for thread, count in _wake_ups(pid).items())
        for pid, counts in before.items()
    }


def sleep_undisturbed(pids: Collection[int], seconds: float, most: int) -> None:
    """Return once, for so many seconds, none of the processes wakes more often than that.

    What they do at their beginning may take its time; one that polls is never so quiet.
    """
    deadline = time.monotonic() + PATIENCE
    while max((woken := _woken_within(seconds, pids)).values()) > most:
        assert time.monotonic() < deadline, f"woken more than {most} times in {seconds} s: {woken}"


def sleep_but_for(most: int, pids: Collection[int], seconds: float) -> set[int]:
    """Return once no more than ``most`` of the processes wake within that time: those that do."""
    deadline = time.monotonic() + PATIENCE
    while len(awake := {pid for pid, n in _woken_within(seconds, pids).items() if n}) > most:
        assert time.monotonic() < deadline, f"more than {most} wake within {seconds} s: {awake}"
    return awake


def asleep(queue: Queue, getters: int = 0, putters: int = 0) -> None:
    """Return once that many processes sleep while waiting for a message, or for room."""

    def are() -> bool:
        stats = queue.stats()
        return (stats.waiting_get, stats.waiting_put) == (getters, putters)

    eventually(are, f"{getters} sleep until a message comes, and {putters} until space does")


def attached(queue: Queue) -> list[int]:
    """The process ids of the attached handles, after clearing away dead ones."""
    queue.qsize()
    return sorted(attachment.pid for attachment in queue.attachments())


def drain(queue: Queue) -> list[Any]:
    """Get and acknowledge all visible messages; their bodies in delivery order."""
    bodies = []
    while messages := queue.get_many(1, block=False):
        bodies.append(messages[0].body)
        messages[0].ack()
    return bodies


def is_sound(queue: Queue) -> None:
    """Fail unless every invariant of the queue's segment holds."""
    assert isinstance(queue, LocalQueue)
    queue.check()


def is_empty(queue: Queue) -> None:
    """Fail unless the queue is sound and empty: no message, no used arena, no sleeper."""
    stats = queue.stats()
    is_sound(queue)
    held = (stats.depth, stats.delayed, stats.in_flight, stats.dying, stats.arena_used)
    assert held == (0, 0, 0, 0, 0)
    assert (stats.waiting_get, stats.waiting_put) == (0, 0)


def files_of(namespace: str) -> list[str]:
    """The names of everything in /dev/shm that belongs to the namespace."""
    return sorted(name for name in os.listdir(SHM) if namespace in name)


# ---- children ----


class Failed:
    """Sent by a child whose work raised."""

    def __init__(self, trace: str) -> None:
        self.trace = trace


class Child:
    """A process that runs ``work(pipe, *arguments)``; the test has the pipe's other end.

    The result of the work is sent at its end.
    """

    def __init__(
        self, work: Callable[..., Any], arguments: Sequence[Any], method: str = "fork"
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        self._pipe, there = context.Pipe()
        self._process: Any = context.Process(target=_carry_out, args=(work, there, arguments))
        self._process.start()
        self.pid = int(self._process.pid)
        there.close()

    def hear(self) -> Any:
        """The next object that the child sends; its failure is the test's failure."""
        wait([self._pipe, self._process.sentinel], PATIENCE)
        assert self._pipe.poll(), f"the child said nothing (exit: {self._process.exitcode})"
        said = self._pipe.recv()
        assert not isinstance(said, Failed), said.trace
        return said

    def has_spoken(self) -> bool:
        """Whether the child has sent something, or has ended."""
        return bool(wait([self._pipe, self._process.sentinel], 0))

    def tell(self, thing: Any = None) -> None:
        """Send the child an object, if only to let it continue."""
        self._pipe.send(thing)

    def ends(self) -> Any:
        """The result of the child's work, once the child has ended on its own."""
        said = self.hear()
        assert self.reap() == 0
        self.kill()
        return said

    def reap(self) -> int:
        """Wait for the child's end; its exit code, or the negative number of its signal."""
        eventually(lambda: self._process.exitcode is not None, "the child ends")
        return int(self._process.exitcode)

    def signal(self, number: int) -> None:
        """Send the child a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the child if it still runs, and wait for its end."""
        if self._process is None:
            return
        if self._process.exitcode is None:
            self._process.kill()
            self.reap()
        self._process.close()
        self._process = None
        self._pipe.close()


class Start:
    """Starts children, which end at the latest with the test."""

    def __init__(self) -> None:
        self._children = contextlib.ExitStack()

    def __call__(self, work: Callable[..., Any], *arguments: Any, method: str = "fork") -> Child:
        child = Child(work, arguments, method)
        self._children.callback(child.kill)
        return child

    def close(self) -> None:
        """Kill the children that have not ended."""
        self._children.close()


def _carry_out(work: Callable[..., Any], pipe: Connection, arguments: Sequence[Any]) -> None:
    try:
        result = work(pipe, *arguments)
    except BaseException:
        result = Failed(traceback.format_exc())
    pipe.send(result)


def hold(pipe: Connection, namespace: str, count: int = 1) -> None:
    """Lease that many messages of queue ``q``, and hold them until killed."""
    queue = shmq.connect(namespace).queue("q")
    held = [queue.get_nowait() for _ in range(count)]
    pipe.send([message.sequence for message in held])
    pipe.recv()


# ---- scripts ----


def environment(**more: object) -> dict[str, str]:
    """The environment of a script, in which it imports this shmq before any other."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    added = {name: str(value) for name, value in more.items()}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **added}


def run_script(
    code: str, *arguments: object, before: Sequence[str] = (), options: Sequence[str] = ()
) -> str:
    """Run Python source in a separate interpreter; returns its output.

    It must end with exit code 0 and without output on stderr. ``before`` is a command that runs
    the interpreter, given as its arguments; ``options`` are the interpreter's.
    """
    done = subprocess.run(
        [*before, sys.executable, *options, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    return done.stdout


@functools.cache
def why_not(*command: str) -> str:
    """Why a command cannot run here, in one line; empty if it can."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"
