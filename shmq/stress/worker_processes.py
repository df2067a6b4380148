"""Workers in their own processes, any of which may be killed."""

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
    """A worker ended on its own."""


class Crew:
    """The live workers, and the times at which the others were killed.

    A worker calls ``work(*arguments, number)``; the first worker has the number 1.
    """

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        #: When each killed worker was last known to live, in monotonic ns.
        self.killed_at: dict[int, int] = {}
        #: How many workers were started; also the number of the newest.
        self.hired = 0
        self._alive: dict[int, tuple[multiprocessing.process.BaseProcess, Callable[..., None]]] = {}

    def hire(self, work: Callable[..., None]) -> int:
        """Start another worker and return its number."""
        self.hired += 1
        process = _FORK.Process(target=work, args=(*self._arguments, self.hired), daemon=True)
        process.start()
        self._alive[self.hired] = (process, work)
        return self.hired

    @property
    def alive(self) -> list[int]:
        """The workers that were neither killed nor seen to end."""
        return list(self._alive)

    def pid(self, worker: int) -> int:
        """The process id of a live worker."""
        process, _ = self._alive[worker]
        assert process.pid is not None
        return process.pid

    def at(self, work: Callable[..., None]) -> list[int]:
        """The live workers that do that work."""
        return [worker for worker, (_, does) in self._alive.items() if does is work]

    def see(self) -> None:
        """Forget the workers that ended normally. Raises :class:`WorkerEnded` for others."""
        for worker, (process, _) in list(self._alive.items()):
            if process.exitcode == 0:
                del self._alive[worker]
                process.close()
            elif process.exitcode is not None:
                raise WorkerEnded(f"worker {worker} ended by itself with {process.exitcode}")

    def kill(self, worker: int) -> Callable[..., None]:
        """Kill a worker; returns its work. Raises :class:`WorkerEnded` if it had already ended."""
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
        """Kill all remaining workers, whatever their state."""
        for process, _ in self._alive.values():
            process.kill()
            process.join()
            process.close()
        self._alive.clear()

    @property
    def killed(self) -> int:
        """How many workers were killed."""
        return len(self.killed_at)
