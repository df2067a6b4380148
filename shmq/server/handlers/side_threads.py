"""Side threads of an event loop: they run jobs that may block, and report back to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from shmq.errors import LockTimeout

T = TypeVar("T")

#: Jobs that run at a time: each that computes makes the event loop wait for the interpreter.
#: A job that meets a held lock is over in a tenth of a second.
_THREADS: Final = 2
#: How soon a chore whose lock timed out is tried again, in seconds.
_AGAIN: Final = 0.05
#: How many times a chore is tried at the end.
_LAST_TRIES: Final = 3


class SideThreads:
    """A few threads of one event loop. Its methods are for that loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
        self._loop = loop
        self._log = log
        self._pool = ThreadPoolExecutor(_THREADS, "shmq side thread")
        self._chores: dict[int, tuple[str, Callable[[], Any]]] = {}
        self._made = 0
        self._closed = False

    def do(self, job: Callable[[], T], tell: Callable[[Future[T]], None]) -> None:
        """Run the job in a thread, then call ``tell`` in the loop with its future."""

        def done(future: Future[T]) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(tell, future)

        self._pool.submit(job).add_done_callback(done)

    def owe(self, what: str, chore: Callable[[], Any]) -> None:
        """Run the chore in a thread, again and again while it raises LockTimeout."""
        self._made += 1
        self._chores[self._made] = what, chore
        if not self._closed:
            self._try(self._made)

    def later(self, seconds: float, what: Callable[[], Any]) -> None:
        """Call ``what`` in the loop, after so many seconds."""
        self._loop.call_later(seconds, what)

    def close(self) -> None:
        """End the threads, and try the remaining chores for the last time."""
        self._closed = True
        self._pool.shutdown()
        for what, chore in self._chores.values():
            for _ in range(_LAST_TRIES):
                try:
                    chore()
                except LockTimeout as error:
                    self._log.warning("%s is left undone until this process ends: %s", what, error)
                    continue
                except Exception:  # noqa: BLE001 - the others are still to be tried
                    self._log.exception("%s failed", what)
                break
        self._chores.clear()

    def _try(self, number: int) -> None:
        if not self._closed and number in self._chores:
            self.do(self._chores[number][1], lambda future: self._on_tried(number, future))

    def _on_tried(self, number: int, future: Future[Any]) -> None:
        if self._closed or number not in self._chores:
            return
        error = future.exception()
        if isinstance(error, LockTimeout):
            self._loop.call_later(_AGAIN, self._try, number)
            return
        what, _ = self._chores.pop(number)
        if error is not None:
            self._log.error("%s failed", what, exc_info=error)
