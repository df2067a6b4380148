"""The worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import shmq
from examples.flights.consumer import consume, consume_over_tcp
from examples.flights.errors import DemoError
from examples.flights.plan import Plan
from examples.flights.producer import produce
from examples.flights.queues import PATIENCE

# Spawned, not forked: each attaches by name, as a separate program would.
_SPAWN = multiprocessing.get_context("spawn")
#: The errors that mean the job is over.
_OVER = (shmq.QueueDeleted, shmq.NoSuchQueue, shmq.StreamDeleted, shmq.NoSuchStream)


class Workers:
    """A context manager of producers and consumers; none of them outlives it."""

    def __init__(self) -> None:
        self.producers: list[BaseProcess] = []
        self.consumers: list[BaseProcess] = []
        #: The consumer that was killed, if one was.
        self.victim: BaseProcess | None = None

    def start(
        self, plan: Plan, url: str | None = None, folder: Path | None = None, doubted: int = 0
    ) -> None:
        """Start the processes of the ``plan``; ``url`` is the address of its server.

        Producers note their progress in the ``folder``, if there is one. Consumers assume that
        messages up to the number ``doubted`` may have been delivered before.
        """
        with interrupts_blocked():
            for index in range(plan.consumers):
                name = f"consumer {index + 1}"
                arguments = plan.namespace, plan.batch, plan.remote > 0, doubted
                self.consumers.append(start(name, consume, *arguments))
            for index in range(plan.remote):
                name = f"consumer {index + 1} over TCP"
                self.consumers.append(start(name, consume_over_tcp, url, plan.batch))
            for share in range(plan.producers):
                name = f"producer {share + 1}"
                self.producers.append(start(name, produce, plan, share, folder))

    def kill_one(self) -> BaseProcess:
        """Send SIGKILL to a consumer and return it."""
        self.victim = self.consumers[0]
        self.victim.kill()
        return self.victim

    def kill(self) -> None:
        """Send SIGKILL to all workers; they can be started again."""
        for process in self.producers + self.consumers:
            process.kill()
        for process in self.producers + self.consumers:
            process.join()
        self.producers, self.consumers = [], []

    @property
    def producing(self) -> bool:
        """Whether a producer is still running."""
        return any(producer.is_alive() for producer in self.producers)

    def check(self) -> None:
        """Raise :class:`DemoError` if a worker ended that should not have."""
        for process in self.producers + self.consumers:
            if process.exitcode and process is not self.victim:
                raise DemoError(f"{process.name} ended with exit code {process.exitcode}")

    def running(self) -> int:
        """How many consumers are alive."""
        return sum(consumer.is_alive() for consumer in self.consumers)

    def join(self) -> None:
        """Wait for all workers to end on their own, and check how they ended."""
        for process in self.producers + self.consumers:
            process.join(PATIENCE)
            if process.exitcode is None:
                raise DemoError(f"{process.name} did not end within {PATIENCE:.0f} s")
        self.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def start(name: str, work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process that does the ``work``; an error is one line and exit code 1."""
    process = _SPAWN.Process(target=_work, args=(work, *arguments), name=name, daemon=True)
    process.start()
    return process


def _work(work: Callable[..., None], *arguments: Any) -> None:
    """The body of every worker: an error is one line and exit code 1."""
    try:
        work(*arguments)
    except _OVER:  # before the work, or just after it began
        return  # the job is over
    except (shmq.ShmqError, DemoError) as error:
        print(f"{multiprocessing.current_process().name}: {error}", file=sys.stderr)
        sys.exit(1)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Start processes that no Ctrl-C reaches: the terminal sends it to all, this one handles it.

    One that comes within the block is delivered to this process at its end.
    """
    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
