"""Taking messages: one round trip if there are any, else a wait that can be ended."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from shmq.client.remote.connection import Backoff
from shmq.native import _core
from shmq.protocol.opcodes import Status

__all__ = ["RemoteGet"]

#: How long the server waits by CONSUME, in ms. One that waits cannot be taken back, so a
#: longer wait is a subscription, which can.
_SHORTLY = 100
#: Of so many messages a server may have sent a part.
_LARGE = 1024
#: How long the end of a subscription may take to be confirmed, in seconds.
_ENDING = 5.0


class RemoteGet:
    """One get of at most ``most`` messages; of those that ``where`` means, an expression.

    A wait that a signal or a cancellation ends has taken nothing: what the server delivers
    to it nevertheless goes back uncounted.
    """

    def __init__(self, queue: Any, most: int, where: bytes | None = None) -> None:
        self._queue = queue
        self._connection = queue.connection
        self._most = most
        self._where = where
        self._lease = queue.options.visibility_timeout

    def run(self, block: bool, timeout: float | None) -> list[Any]:
        """The messages; none if none came in time."""
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
            # The server may still deliver to it: that goes back at once, not with the lease.
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
        """Wait for one: whether the time is over, and what came."""
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
            return False, []  # once more, over the next connection
        self._end(wire, stream)
        return True, list(stream.messages or ())

    def _with_rest(self, messages: list[Any]) -> list[Any]:
        """What else is there, where the server does not send all of so many at once."""
        most, more = self._most, messages
        while len(more) >= _LARGE and len(messages) < most:
            self._most = most - len(messages)
            more = self._consume(0)
            messages += more
        return messages

    def _with_more(self, messages: list[Any]) -> list[Any]:
        """The first one that came, and what else is there."""
        if self._most > len(messages):
            self._most -= len(messages)
            messages = messages + self._consume(0)
        return messages

    def _end(self, wire: _core.Wire, stream: _core.Answer) -> None:
        """No message follows when this returns."""
        if not wire.is_broken and not stream.done:
            try:
                wire.wait(wire.unsubscribe(stream), _ENDING)
            finally:
                wire.forget(stream)

    # ---- asyncio ----

    async def arun(self, timeout: float | None) -> list[Any]:
        """``run``, for a task."""
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
