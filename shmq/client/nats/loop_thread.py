"""The event loop of a process for its connections to clusters, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, Generic, TypeVar

from shmq.errors import ShmqError

__all__ = ["LoopThread"]

_T = TypeVar("_T")

#: How long an interrupted call waits until its coroutine has returned what it took, in seconds.
_ENDING: Final = 1.0


class _Call(Generic[_T]):
    """A coroutine in the loop whose end another thread waits for.

    A lock and a task alone: a future of each kind, chained, takes three turns of the loop more.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, _T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        self._results: list[_T] = []
        self._error: BaseException | None = None
        #: Released at the end.
        self.ended = threading.Lock()
        self.ended.acquire()

    def start(self) -> None:
        """Begin it; in the loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        self._has_begun = True
        try:
            self._results.append(await self._coroutine)
        except BaseException as error:  # noqa: BLE001 - it is raised by `result`
            self._error = error
        finally:
            self.ended.release()

    def cancel(self) -> None:
        """Cancel it, if it has not ended; in the loop."""
        if self._task is not None:
            self._task.cancel()
        if not self._has_begun:  # and never will
            self._coroutine.close()
            self.ended.release()

    def result(self) -> _T:
        """What it returned, once it has ended. Raises what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._results.pop()
        try:
            if isinstance(error, asyncio.CancelledError):
                raise ShmqError("the connection was closed while a call waited") from None
            raise error
        finally:
            del error  # its traceback has this frame


class LoopThread:
    """One loop in one daemon thread of this process; the child of a fork makes its own."""

    _made: LoopThread | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="shmq-cluster", daemon=True)
        self._thread.start()

    @classmethod
    def get(cls) -> LoopThread:
        """That of this process; it is made at the first call."""
        made = cls._made
        if made is None or made.process != os.getpid():
            with cls._lock:
                made = cls._made
                if made is None or made.process != os.getpid():
                    made = cls._made = LoopThread()
        return made

    @classmethod
    def _forget(cls) -> None:
        cls._made, cls._lock = None, threading.Lock()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run it in the loop, and wait for its result; an interrupt cancels it."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ShmqError("a call that waits was made in the thread that would have to serve it")
        call = _Call(coroutine)
        try:
            self.loop.call_soon_threadsafe(call.start)
            call.ended.acquire()
        except BaseException:
            self.loop.call_soon_threadsafe(call.cancel)
            call.ended.acquire(timeout=_ENDING)
            raise
        return call.result()

    async def arun(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """``run`` for a task of any loop; its cancellation cancels the coroutine."""
        if asyncio.get_running_loop() is self.loop:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run it in the loop without waiting."""
        with contextlib.suppress(RuntimeError):  # the interpreter ends
            asyncio.run_coroutine_threadsafe(coroutine, self.loop)


os.register_at_fork(after_in_child=LoopThread._forget)
