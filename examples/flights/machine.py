"""Everything that a reboot ends: the server, the workers, and the queues' memory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from pathlib import Path
from typing import Final, Self

import shmq
from examples.flights import memory
from examples.flights.checkpoint import Checkpoint
from examples.flights.plan import Plan
from examples.flights.queues import Queues
from examples.flights.server import Server
from examples.flights.workers import Workers

#: Temporary files on disk, by the Filesystem Hierarchy Standard; /tmp may be in memory.
_ON_DISK: Final = Path("/var/tmp")


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """What was lost with the memory, and what came back from the disk."""

    #: Unacknowledged flights in the queue when its memory was lost.
    held: int
    #: The queue after the recovery.
    stats: shmq.QueueStats
    #: From the restart of the server until the queues were there, in seconds.
    seconds: float
    #: Flights that the producers had not put yet, or did not know to be on disk.
    to_put: int
    #: Those of them that the producers may have put before.
    put_again: int


class Machine:
    """The processes of one run and the queues between them. A context manager that ends them all.

    If the plan loses the memory, it keeps a directory on disk with the queues' journals and the
    producers' checkpoints.
    """

    server: Server | None = None

    def __init__(self, plan: Plan) -> None:
        self.workers = Workers()
        archived = plan.flights if plan.archive else 0
        self.queues = Queues(plan.namespace, durable=plan.lose, archived=archived)
        self._plan = plan
        self._folder: Path | None = None
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        """Start the workers."""
        self._start_workers()

    def lose(self) -> int:
        """Kill all processes, remove all shared memory; returns how many flights the queue held."""
        self.workers.kill()
        if self.server is not None:
            self.server.kill_all()
        held = waiting(self.queues.flights.stats())
        self.queues.leave()
        memory.lose(self._plan.namespace)
        return held

    def retire(self) -> None:
        """End the workers cleanly; the counted flights stay in their queue.

        Raises :class:`DemoError` if one does not end.
        """
        self.queues.retire()
        self.workers.join()

    def recover(self, held: int) -> Loss:
        """Start the server, which recovers the queues from disk, and the workers.

        Raises :class:`DemoError` if the server does not start, and
        :class:`~shmq.NoSuchQueue` if a queue was not recovered.
        """
        began = time.monotonic()
        self._serve()
        self.queues.find()
        seconds = time.monotonic() - began
        stats = self.queues.flights.stats()
        left = self._get_left()
        self._start_workers(doubted=stats.journal_synced)
        size = self._plan.stride
        return Loss(held, stats, seconds, sum(left), sum(min(size, one) for one in left))

    def _get_left(self) -> list[int]:
        """How many flights each producer has yet to put."""
        assert self._folder is not None
        left = []
        for share in range(self._plan.producers):
            with Checkpoint(self._folder, share) as checkpoint:
                left.append(self._plan.share(share) - checkpoint.flights)
        return left

    def _serve(self) -> None:
        data_dir = self._folder / "queues" if self._folder else None
        self.server = Server(self._plan.namespace, data_dir)

    def _start_workers(self, doubted: int = 0) -> None:
        url = self.server.url if self.server else None
        self.workers.start(self._plan, url, self._folder, doubted)

    def _close_server(self) -> None:
        if self.server is not None:
            self.server.close()

    def _sweep(self) -> None:
        """Remove the rest of the namespace, whose last user this is."""
        shmq.connect(self._plan.namespace).close()

    def _join(self, kind: object, *_: object) -> None:
        if kind is None:
            self.workers.join()

    def __enter__(self) -> Self:
        with self._stack as stack:
            stack.callback(self._sweep)
            if self._plan.lose:
                where = os.environ.get("TMPDIR") or (_ON_DISK if _ON_DISK.is_dir() else None)
                folder = tempfile.TemporaryDirectory(prefix="shmq-demo-", dir=where)
                self._folder = Path(stack.enter_context(folder))
            stack.callback(self._close_server)
            stack.enter_context(self.workers)
            stack.push(self._join)
            stack.enter_context(self.queues)
            if self._plan.lose or self._plan.remote:
                self._serve()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]


def waiting(stats: shmq.QueueStats) -> int:
    """How many messages the queue holds, in any state."""
    return stats.depth + stats.delayed + stats.in_flight + stats.dying
