"""Getting messages: one round trip if there are any, else a wait that can be cancelled."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from shmq.client.remote.connection import Backoff
from shmq.native import _core
from shmq.protocol.opcodes import Status

__all__ = ["RemoteGet"]

#: How long a CONSUME waits at the server, in ms. It cannot be cancelled, so a longer wait is a
#: subscription, which can.
_SHORTLY = 100
#: From this many messages on, a server may have sent only a part.
_LARGE = 1024
#: How long to wait until the end of a subscription is confirmed, in seconds.
_ENDING = 5.0


class RemoteGet:
    """One get of at most ``most`` messages, of those that match the expression ``where``.

    A wait that ends by a signal or a cancellation has taken nothing: messages that the server still
    delivers to it are returned uncounted.
    """

    def __init__(self, queue: Any, most: int, where: bytes | None = None) -> None:
        self._queue = queue
        self._connection = queue.connection
        self._most = most
        self._where = where
        self._lease = queue.options.visibility_timeout

    def run(self, block: bool, timeout: float | None) -> list[Any]:
        """The messages; empty if none came in time."""
        until = None if timeout is None else time.monotonic() + timeout
        waits = block and timeout != 0
        short = 0 if not waits else _SHORTLY
        if until is not None and waits:
            short = min(_SHORTLY, max(1, int((timeout or 0) * 1000)))
        messages = self._consume(short)
        if len(messages) >= _LARGE:
            messages = self._with_rest(messages)
        backoff = None
        while not messages and waits and (until is None or time.monotonic() < until):
            ended, messages = self._subscribe(until)
            if ended:
                break
            backoff = backoff or Backoff()
            time.sleep(backoff.pause(None if until is None else until - time.monotonic()))
        return messages

    def _consume(self, wait_ms: int) -> list[Any]:
        connection = self._connection
        asked: list[tuple[_core.Wire, _core.Answer]] = []

        def write(wire: _core.Wire) -> _core.Answer:
            answer = wire.consume(self._most, wait_ms, self._lease, self._where)
            asked[:] = [(wire, answer)]
            return answer

        try:
            answer = connection.call(write, again=True, wait=wait_ms / 1000)
        except KeyboardInterrupt:
            # The server may still deliver to it: that is returned at once, not at the lease's end.
            for wire, answer in asked:
                wire.take_back(answer, wait_ms / 1000 + _ENDING)
            raise
        return self._messages(answer)

    def _messages(self, answer: _core.Answer) -> list[Any]:
        if answer.status == Status.QUEUE_EMPTY:
            return []
        if not answer.messages:
            raise self._queue.error(answer)
        return answer.messages

    def _subscribe(self, until: float | None) -> tuple[bool, list[Any]]:
        """Wait for a message: returns whether the time is over, and what came."""
        connection = self._connection
        wire = connection.ready(time.monotonic() + connection.target.request_timeout)
        stream = wire.subscribe(1, self._lease, None, self._where)
        left = None if until is None else max(0.0, until - time.monotonic())
        try:
            wire.wait(stream, left)
        except BaseException:
            self._end(wire, stream)
            if stream.messages:
                wire.give_back(stream.messages)
            raise
        return self._outcome(wire, stream)

    def _outcome(self, wire: _core.Wire, stream: _core.Answer) -> tuple[bool, list[Any]]:
        if stream.messages and not stream.lost:
            wire.unsubscribe(stream)
            wire.forget(stream)
            wire.send()
            return True, self._with_more(stream.messages)
        if stream.done:
            self._connection.check_stream(wire, stream, self._queue.error)
            return False, []  # retry over the next connection
        self._end(wire, stream)
        return True, list(stream.messages or ())

    def _with_rest(self, messages: list[Any]) -> list[Any]:
        """Add the remaining messages, if the server did not send that many at once."""
        most, more = self._most, messages
        while len(more) >= _LARGE and len(messages) < most:
            self._most = most - len(messages)
            more = self._consume(0)
            messages += more
        return messages

    def _with_more(self, messages: list[Any]) -> list[Any]:
        """The first message that came, and the others that are available."""
        if self._most > len(messages):
            self._most -= len(messages)
            messages = messages + self._consume(0)
        return messages

    def _end(self, wire: _core.Wire, stream: _core.Answer) -> None:
        """End the subscription: no message follows when this returns."""
        if not wire.is_broken and not stream.done:
            try:
                wire.wait(wire.unsubscribe(stream), _ENDING)
            finally:
                wire.forget(stream)

    # ---- asyncio ----

    async def arun(self, timeout: float | None) -> list[Any]:
        """``run`` for asyncio."""
        until = None if timeout is None else time.monotonic() + timeout
        answer = await self._connection.acall(
            lambda wire: wire.consume(self._most, 0, self._lease, self._where), again=True
        )
        messages = self._messages(answer)
        backoff = None
        while not messages and timeout != 0 and (until is None or time.monotonic() < until):
            ended, messages = await self._asubscribe(until)
            if ended:
                break
            backoff = backoff or Backoff()
            left = None if until is None else until - time.monotonic()
            await asyncio.sleep(backoff.pause(left))
        return messages

    async def _asubscribe(self, until: float | None) -> tuple[bool, list[Any]]:
        connection = self._connection
        wire = await connection.aready(time.monotonic() + connection.target.request_timeout)
        stream = wire.subscribe(1, self._lease, None, self._where)
        loop_driver = connection.attend(wire)
        left = None if until is None else max(0.0, until - time.monotonic())
        try:
            answered = await loop_driver.wait(stream, left)
            if not answered:
                await loop_driver.wait(wire.unsubscribe(stream), _ENDING)
                wire.forget(stream)
                return True, list(stream.messages or ())
        except BaseException:
            if not wire.is_broken:
                wire.unsubscribe(stream)
                wire.forget(stream)
                if stream.messages:
                    wire.give_back(stream.messages)
                wire.send()
            raise
        return self._outcome(wire, stream)
