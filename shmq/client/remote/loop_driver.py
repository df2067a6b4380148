"""Reading and writing a connection in an event loop."""

from __future__ import annotations

import asyncio
import threading

from shmq.native import _core

__all__ = ["LoopDriver"]


class LoopDriver:
    """One event loop that reads and writes one wire, concurrently with any threads.

    Requests that tasks write in one iteration of the loop are sent together.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wire: _core.Wire) -> None:
        self.loop = loop
        self.wire = wire
        self._thread = threading.get_ident()
        self._fd = wire.fileno()
        self._sending = False
        self._writing = False
        self._ended = wire.is_broken  # its number may be another socket's by now
        if not self._ended:
            wire.holds += 1
            loop.add_reader(self._fd, self._read)

    async def wait(self, answer: _core.Answer, timeout: float | None) -> bool:
        """Send, and wait for the answer; whether it came within ``timeout`` seconds."""
        self.send_soon()
        if self.wire.is_broken and not answer.is_ready:
            self.wire.lose(answer)
        if answer.is_ready:
            return True
        future: asyncio.Future[bool] = self.loop.create_future()

        def come(_: _core.Answer) -> None:
            if threading.get_ident() == self._thread:
                _settle(future, True)
            elif not self.loop.is_closed():
                self.loop.call_soon_threadsafe(_settle, future, True)

        answer.notify = come
        timer = None if timeout is None else self.loop.call_later(timeout, _settle, future, False)
        try:
            return await future or answer.is_ready
        finally:
            answer.notify = None
            if timer is not None:
                timer.cancel()

    def _read(self) -> None:
        self.wire.read_now()
        if self.wire.is_broken:
            self.end()

    def send_soon(self) -> None:
        """Send what was written at the end of this iteration of the loop."""
        if not self._sending:
            self._sending = True
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        self._sending = False
        left = self.wire.send()
        if left and not self._writing and not self._ended:
            self._writing = True
            self.loop.add_writer(self._fd, self._write)

    def _write(self) -> None:
        if not self.wire.send():
            self._writing = False
            self.loop.remove_writer(self._fd)

    def end(self) -> None:
        """Stop watching the socket; from any thread, before it is closed."""
        if self._ended:
            return
        self._ended = True
        if self.loop.is_closed():
            self.wire.let_go()
        elif threading.get_ident() == self._thread:
            self._leave()
        else:
            self.loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self.loop.remove_reader(self._fd)
        if self._writing:
            self.loop.remove_writer(self._fd)
        self.wire.let_go()


def _settle(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
