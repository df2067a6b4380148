"""The event loop of a process for its connections to clusters, in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from shmq.errors import ShmqError

__all__ = ["LoopThread"]

_T = TypeVar("_T")


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
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ShmqError("the connection was closed while a call waited") from None
        except BaseException:
            self._cancel(future)
            raise

    def _cancel(self, future: concurrent.futures.Future[Any]) -> None:
        """Cancel what the interrupted caller waits for, and let it return what it took."""
        if future.cancel():
            done = threading.Event()
            self.loop.call_soon_threadsafe(done.set)
            done.wait(1.0)

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
