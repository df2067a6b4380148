"""Getting messages of a server: one round trip if there are any, else a cancellable wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from shmq.client.ports.steps import Step, Steps, pause, run
from shmq.client.remote.connection import Attempt, Connection
from shmq.client.shared.backoff import Backoff
from shmq.errors import ShmqError
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.opcodes import Status, Type

#: How long a CONSUME waits at the server, in ms. It cannot be cancelled, so a longer wait is a
#: subscription, which can.
_SHORTLY = 100
#: From this many messages on, a server may have sent only a part.
_LARGE = 1024
#: How long to wait until the end of a subscription is confirmed, in seconds.
_ENDING = 5.0


def first_wait(timeout: float | None) -> int:
    """How long the first CONSUME of a get waits at the server, in ms."""
    if timeout == 0:
        return 0
    return _SHORTLY if timeout is None else max(1, int(min(timeout, _SHORTLY / 1000) * 1000))


class RemoteGet:
    """One get of at most ``most`` messages, of those that match the expression ``where``.

    A wait that ends by a signal or a cancellation has taken nothing: messages that the server still
    delivers to it are returned uncounted.
    """

    def __init__(self, port: Any, most: int, where: str | None = None) -> None:
        self._port = port
        self._connection: Connection = port.connection
        self._most = most
        self._where = None if where is None else where.encode()
        self._lease = port.options.visibility_timeout
        self._acks = port.acks
        self._wait_ms = 0
        #: When the get ends (monotonic), and with it the attempts to reconnect; None: no limit.
        self._until: float | None = None
        #: The last CONSUME that was sent.
        self._asked: tuple[_core.Wire, _core.Answer] | None = None

    def take_now(self, timeout: float | None) -> list[Any]:
        """As `take`, in this thread, without its steps if messages are available."""
        self._until = None if timeout is None else time.monotonic() + timeout
        messages = self._messages(self._consume(first_wait(timeout), None))
        if 0 < len(messages) < _LARGE or (timeout == 0 and not messages):
            return messages
        return run(self._rest(messages, timeout))

    def take(self, timeout: float | None, first: Attempt | None = None) -> Steps[list[Any]]:
        """The messages; empty if none came in time. ``first``: a CONSUME sent for them already."""
        began = time.monotonic() if first is None else first.began
        self._until = None if timeout is None else began + timeout
        messages = self._messages((yield self._consuming(first_wait(timeout), first)))
        return (yield from self._rest(messages, timeout))

    def _rest(self, messages: list[Any], timeout: float | None) -> Steps[list[Any]]:
        """What follows the first CONSUME, which has brought ``messages``."""
        until = self._until
        if len(messages) >= _LARGE:
            assert self._asked is not None
            messages = yield from self._with_rest(self._asked[0], messages)
        backoff = None
        while not messages and timeout != 0 and (until is None or time.monotonic() < until):
            ended, messages = yield from self._subscribe()
            if ended:
                break
            backoff = backoff or Backoff()
            yield pause(backoff.pause(None if until is None else until - time.monotonic()))
        return messages

    def _consuming(self, wait_ms: int, first: Attempt | None = None) -> Step:
        """The step of one CONSUME. That of a task waits not at the server: it can be cancelled."""
        return (lambda: self._consume(wait_ms, first), self._aconsume)

    def _consume(self, wait_ms: int, first: Attempt | None) -> _core.Answer:
        self._wait_ms = wait_ms
        self._asked = None if first is None else (first.wire, first.answer)
        wait = wait_ms / 1000
        try:
            return self._connection.call(
                Type.CONSUME, self._ask, wait=wait, first=first, retry_until=self._until
            )
        except KeyboardInterrupt:
            # The server may still deliver to it: that is returned at once, not at the lease's end.
            if self._asked is not None:
                wire, answer = self._asked
                wire.take_back(answer, wait + _ENDING)
            raise

    def _aconsume(self) -> Coroutine[Any, Any, _core.Answer]:
        self._wait_ms = 0
        return self._connection.acall(Type.CONSUME, self._ask, retry_until=self._until)

    def _ask(self, wire: _core.Wire) -> _core.Answer:
        answer = wire.consume(self._most, self._wait_ms, self._lease, self._where)
        if self._acks is not None:
            wire.ride(answer, self._acks)
        self._asked = wire, answer
        return answer

    def _wait_for_one(self, wire: _core.Wire) -> _core.Answer:
        """Write the subscription of a wait that can be cancelled."""
        stream = wire.subscribe(1, self._lease, None, self._where)
        if self._acks is not None:
            wire.ride(stream, self._acks)
        return stream

    def _messages(self, answer: _core.Answer) -> list[Any]:
        if answer.status == Status.QUEUE_EMPTY:
            return []
        if not answer.messages:
            raise self._port.error(answer)
        found: list[Any] = answer.messages
        return found

    def _subscribe(self) -> Steps[tuple[bool, list[Any]]]:
        """Wait for a message: returns whether the time has expired, and what came."""
        connection, until = self._connection, self._until
        patience = connection.target.request_timeout
        wire = yield connection.readying(time.monotonic() + patience, until)
        stream = self._wait_for_one(wire)
        left = None if until is None else max(0.0, until - time.monotonic())
        try:
            answered = yield connection.waiting(wire, stream, left)
            if not answered:
                yield from self._end(wire, stream)
        except BaseException as error:
            yield from self._abandon(wire, stream, error)
            raise
        if answered:
            return (yield from self._outcome(wire, stream))
        return True, list(stream.messages or ())

    def _abandon(self, wire: _core.Wire, stream: _core.Answer, error: BaseException) -> Steps[None]:
        """Return what the subscription of an interrupted wait has brought, and ends to bring."""
        if wire.is_broken:
            return
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            wire.unsubscribe(stream)  # its loop returns what arrives later
            wire.forget(stream)
        else:
            yield from self._end(wire, stream)
        if stream.messages:
            wire.give_back(stream.messages)
        wire.send()

    def _outcome(self, wire: _core.Wire, stream: _core.Answer) -> Steps[tuple[bool, list[Any]]]:
        if stream.messages and not stream.lost:
            wire.unsubscribe(stream)
            wire.forget(stream)
            wire.send()
            return True, (yield from self._with_more(wire, stream.messages))
        if stream.done:
            self._connection.check_stream(wire, stream, self._port.error)
        return False, []  # retry over the next connection

    def _with_rest(self, wire: _core.Wire, messages: list[Any]) -> Steps[list[Any]]:
        """Add the remaining messages, if the server did not send that many at once."""
        most, more = self._most, messages
        while len(more) >= _LARGE and len(messages) < most:
            self._most = most - len(messages)
            more = yield from self._more(wire, messages)
            messages += more
        return messages

    def _with_more(self, wire: _core.Wire, messages: list[Any]) -> Steps[list[Any]]:
        """The first message that came, and the others that are available."""
        if self._most > len(messages):
            self._most -= len(messages)
            messages = messages + (yield from self._more(wire, messages))
        return messages

    def _more(self, wire: _core.Wire, messages: list[Any]) -> Steps[list[Any]]:
        """More messages than those that came over ``wire``; none if the request is refused.

        If it is interrupted, those are returned.
        """
        try:
            return self._messages((yield self._consuming(0)))
        except BaseException as error:
            if isinstance(error, ShmqError) and not wire.is_broken:
                return []
            wire.give_back(messages)
            raise

    def _end(self, wire: _core.Wire, stream: _core.Answer) -> Steps[None]:
        """End the subscription: no message follows when this returns."""
        if not wire.is_broken and not stream.done:
            try:
                yield self._connection.waiting(wire, wire.unsubscribe(stream), _ENDING)
            finally:
                wire.forget(stream)
