"""Workers in processes of their own, any of which may be killed."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import signal
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Crew", "WorkerEnded"]

_FORK = multiprocessing.get_context("fork")


class WorkerEnded(RuntimeError):
    """A worker ended by itself."""


class Crew:
    """The workers that live now, and when those were killed that do not.

    A worker carries out ``work(*arguments, number)``, its number being 1 for the first.
    """

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        #: When each killed worker was last known to live, in monotonic ns.
        self.killed_at: dict[int, int] = {}
        #: How many were ever started; the number of the newest.
        self.hired = 0
        self._alive: dict[int, tuple[multiprocessing.process.BaseProcess, Callable[..., None]]] = {}

    def hire(self, work: Callable[..., None]) -> int:
        """Start one worker more; its number."""
        self.hired += 1
        process = _FORK.Process(target=work, args=(*self._arguments, self.hired), daemon=True)
        process.start()
        self._alive[self.hired] = (process, work)
        return self.hired

    @property
    def alive(self) -> list[int]:
        """Those who were neither killed nor seen to end."""
        return list(self._alive)

    def pid(self, worker: int) -> int:
        """The process id of one that lives."""
        process, _ = self._alive[worker]
        assert process.pid is not None
        return process.pid

    def at(self, work: Callable[..., None]) -> list[int]:
        """Those of the living who do that."""
        return [worker for worker, (_, does) in self._alive.items() if does is work]

    def see(self) -> None:
        """Forget those who have ended as they should. Raises :class:`WorkerEnded`."""
        for worker, (process, _) in list(self._alive.items()):
            if process.exitcode == 0:
                del self._alive[worker]
                process.close()
            elif process.exitcode is not None:
                raise WorkerEnded(f"worker {worker} ended by itself with {process.exitcode}")

    def kill(self, worker: int) -> Callable[..., None]:
        """Kill one; returns what it did. Raises :class:`WorkerEnded` if it had ended by itself."""
        process, work = self._alive.pop(worker)
        if process.exitcode is not None:
            raise WorkerEnded(f"worker {worker} ended by itself with {process.exitcode}")
        self.killed_at[worker] = time.monotonic_ns()
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise WorkerEnded(f"worker {worker} ended by itself with {process.exitcode}")
        process.close()
        return work

    def dismiss(self) -> None:
        """Kill whoever is left, however they are."""
        for process, _ in self._alive.values():
            process.kill()
            process.join()
            process.close()
        self._alive.clear()

    @property
    def killed(self) -> int:
        """How many have been killed."""
        return len(self.killed_at)
