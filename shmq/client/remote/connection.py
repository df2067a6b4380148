"""The connection of one handle: made when it is needed, and re-established when it is lost.

Threads read and write it themselves; an event loop does so by its LoopDriver.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from shmq import errors
from shmq.client.ports.steps import Step, Steps, arun, pause, run
from shmq.client.remote.address import Target
from shmq.client.remote.connect import dial
from shmq.client.shared import loop_timer
from shmq.client.shared.backoff import Backoff
from shmq.client.shared.blocking_calls import run_blocking
from shmq.client.shared.reconnects import LIMIT
from shmq.fork_safe import new_lock
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.queue import Greeting
from shmq.protocol.opcodes import AGAIN, Status, Type
from shmq.protocol.status import error_of_status

Write = Callable[[_core.Wire], _core.Answer]
Await = Callable[[_core.Wire, _core.Answer], Steps[None]]


class Attempt(NamedTuple):
    """A request that was written to ``wire`` at the time ``began`` (monotonic)."""

    wire: _core.Wire
    answer: _core.Answer
    began: float


#: How long a close waits for the server to process earlier requests, in seconds.
_FAREWELL = 1.0

#: The least time that must be left of a request for another attempt, in seconds.
_LEAST = 0.05

_SHUTTING_DOWN: Final = int(Status.SHUTTING_DOWN)

_all: weakref.WeakSet[Connection] = weakref.WeakSet()


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
        timer = (
            None
            if timeout is None
            else loop_timer.call_later(self.loop, timeout, _settle, future, False)
        )
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
        elif _core.is_over(self._fd):
            self.loop.call_soon(self._read)

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


def _plain(kind: Type, payload: bytes, named: bool) -> Write:
    return lambda wire: wire.request(kind, named, payload)


def _may_repeat(kind: Type, given: bool | None) -> bool:
    """Whether the request may be sent again: as its type says, or as its caller must say."""
    known = AGAIN[kind]
    assert (known is None) != (given is None), f"{kind.name} is sent again: {known} or {given}?"
    return bool(known or given)


def _settle(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


class Connection:
    """One TCP connection at a time to a server.

    The server returns what was leased over a lost connection to its queue. A request is repeated
    over the next connection if the server cannot have carried it out, or if it may be carried out
    twice.
    """

    def __init__(
        self, target: Target, name: str = "", queue: Any = None, kind: str = "queue"
    ) -> None:
        self.target = target
        self.name = name
        self.kind = kind
        self.wire: _core.Wire | None = None
        self.greeting: Greeting | None = None
        self.closed = False
        self._queue = queue
        self._lock = new_lock()
        #: The latest attempt to connect that failed: when, by time.monotonic(), and the error.
        self._failed: tuple[float, type[errors.ShmqError], str] | None = None
        self._loop_drivers: dict[int, LoopDriver] = {}
        _all.add(self)

    @property
    def what(self) -> str:
        """The subject of error texts."""
        return f"{self.kind} {self.name!r} of {self.target.address}" if self.name else self.url

    @property
    def url(self) -> str:
        """The server's URL."""
        return str(self.target.address)

    @property
    def where(self) -> str:
        """The place of a name, for error texts."""
        namespace = "" if self.greeting is None else f"namespace {self.greeting.namespace!r} of "
        return f"in {namespace}{self.url}"

    def set_queue(self, queue: Any) -> None:
        """Set the ``queue``, a weak reference, by which messages settle themselves."""
        self._queue = queue

    # ---- the connection itself ----

    def ready(self, until: float, retry_until: float | None = None) -> _core.Wire:
        """A usable wire, made before ``until`` (monotonic).

        It is tried once if the server was never reached, otherwise again until ``retry_until``;
        None: until ``until``. Raises :class:`~shmq.ConnectionLost`, :class:`~shmq.Unauthorized`.
        """
        wire = self.wire
        if wire is not None and wire.is_usable:
            return wire
        backoff = Backoff()
        while True:
            begun = time.monotonic()
            try:
                with self._lock:  # not in the pauses: another thread may have less time
                    return self._redial(until, begun)
            except (errors.ConnectionLost, errors.ShuttingDown) as error:
                until = until if retry_until is None else min(until, retry_until)
                left = until - time.monotonic()
                if self.greeting is None or left <= 0:
                    raise
                if self.closed:
                    raise self.closed_error() from error
                time.sleep(backoff.pause(left))

    def _redial(self, until: float, begun: float) -> _core.Wire:
        """Connect, or have the outcome of another thread that has tried since ``begun``."""
        if self.closed:
            raise self.closed_error()
        if self.wire is not None and self.wire.is_usable:
            return self.wire
        if self._failed is not None and begun < self._failed[0]:
            raise self._failed[1](self._failed[2])
        self._drop()
        timeout = max(0.001, min(self.target.connect_timeout, until - time.monotonic()))
        try:
            wire, self.greeting = dial(self.target, self.name, self._queue, timeout)
        except (errors.ConnectionLost, errors.ShuttingDown) as error:
            self._failed = time.monotonic(), type(error), str(error)
            raise
        self._failed = None
        self.wire = wire
        if self.closed:  # in the meantime, by another thread
            wire.close()
            raise self.closed_error()
        return wire

    def _drop(self) -> None:
        if self.wire is not None:
            self._let_go(self.wire)
            self.wire.close()
            self.wire = None

    def _let_go(self, wire: _core.Wire) -> None:
        """Stop the event loops from watching the old socket."""
        loop_drivers, self._loop_drivers = self._loop_drivers, {}
        if wire.is_of_this_process:
            for loop_driver in loop_drivers.values():
                loop_driver.end()

    def closed_error(self) -> errors.ShmqError:
        """The error for a use of a closed handle."""
        return errors.closed_handle(self.kind, self.name) if self.name else errors.closed_broker()

    def close(self) -> None:
        """Close the connection. When it returns, everything it had leased is back in its queues."""
        if self.closed:
            return
        self.closed = True
        wire = self.wire
        if wire is not None and wire.is_of_this_process and not wire.is_broken:
            with contextlib.suppress(errors.ShmqError):
                wire.farewell(_FAREWELL)
        self.drop()

    def drop(self) -> None:
        """Close the connection without waiting."""
        self.closed = True
        if self.wire is not None:
            self._let_go(self.wire)
            self.wire.close()

    def leave(self) -> None:
        """Leave the connection to the parent of this forked child: only the parent may end it."""
        self._loop_drivers = {}
        if self.wire is not None:
            self.wire.close()

    # ---- requests ----

    def ask(
        self,
        kind: Type,
        payload: bytes,
        *,
        named: bool = False,
        again: bool | None = None,
        wait: float = 0.0,
    ) -> _core.Answer:
        """`call` with a plain payload; ``named``: behind the name of the connection's object."""
        write = _plain(kind, payload, named)
        return self.call(kind, write, again=again, wait=wait)

    async def aask(
        self,
        kind: Type,
        payload: bytes,
        *,
        named: bool = False,
        again: bool | None = None,
        wait: float = 0.0,
    ) -> _core.Answer:
        """``ask`` for asyncio."""
        write = _plain(kind, payload, named)
        return await self.acall(kind, write, again=again, wait=wait)

    def call(
        self,
        kind: Type,
        write: Write,
        *,
        again: bool | None = None,
        wait: float = 0.0,
        within: float = math.inf,
        await_: Await | None = None,
        first: Attempt | None = None,
        retry_until: float | None = None,
    ) -> _core.Answer:
        """Carry out one request: see `calling`."""
        wire = self.wire
        if first is None and await_ is None and wire is not None and wire.is_usable:
            # The usual case, without the repetitions.
            answer = write(wire)
            began = time.monotonic()
            self.await_(wire, answer, self.target.request_timeout + wait)
            if not answer.lost and answer.status != _SHUTTING_DOWN:
                return answer
            first = Attempt(wire, answer, began)
        return run(self.calling(kind, write, again, wait, within, await_, first, retry_until))

    async def acall(
        self,
        kind: Type,
        write: Write,
        *,
        again: bool | None = None,
        wait: float = 0.0,
        within: float = math.inf,
        await_: Await | None = None,
        first: Attempt | None = None,
        retry_until: float | None = None,
    ) -> _core.Answer:
        """``call`` for asyncio. A cancelled task stops waiting; see ``Wire.forget``."""
        wire = self.wire
        if first is None and await_ is None and wire is not None and wire.is_usable:
            # The usual case, without the repetitions.
            answer = write(wire)
            began = time.monotonic()
            await self.aawait(wire, answer, self.target.request_timeout + wait)
            if not answer.lost and answer.status != _SHUTTING_DOWN:
                return answer
            first = Attempt(wire, answer, began)
        return await arun(
            self.calling(kind, write, again, wait, within, await_, first, retry_until)
        )

    def calling(
        self,
        kind: Type,
        write: Write,
        again: bool | None = None,
        wait: float = 0.0,
        within: float = math.inf,
        await_: Await | None = None,
        first: Attempt | None = None,
        retry_until: float | None = None,
    ) -> Steps[_core.Answer]:
        """Carry out one request; ``wait``: seconds that the server may take beyond the timeout.

        ``again``: whether it may be carried out twice, ``within`` that many seconds; given only for
        a type of which `AGAIN` leaves that to the request. ``await_`` waits for the answer, as long
        as it likes; None: `answering`. ``first`` is an attempt that the caller has made.
        ``retry_until`` (monotonic) ends the attempts before the request timeout does: it is sent
        again once in any case; None: the limit set by `limit_reconnects`. Raises
        :class:`~shmq.ConnectionLost` without an answer in time, or if the connection is lost and
        the request must not be repeated.
        """
        repeats = _may_repeat(kind, again)
        began = time.monotonic() if first is None else first.began
        until = again_until = began + self.target.request_timeout
        if retry_until is None:
            retry_until = LIMIT.get()
        backoff = None
        while True:
            if first is None:
                wire: Any = self.wire
                if wire is None or not wire.is_usable:
                    wire = yield self.readying(until, retry_until)
                answer = write(wire)
            else:
                wire, answer, first = first.wire, first.answer, None
            if await_ is None:
                yield self.answering(wire, answer, max(0.0, until - time.monotonic()) + wait)
            else:
                yield from await_(wire, answer)
            still = repeats and time.monotonic() - began < within
            if not self._is_to_be_repeated(wire, answer, still, again_until):
                return answer
            backoff = backoff or Backoff()
            seconds = backoff.pause()
            if time.monotonic() + seconds + _LEAST >= again_until:
                return self._last(wire, answer)
            yield pause(seconds)
            again_until = until if retry_until is None else min(until, retry_until)

    def readying(self, until: float, retry_until: float | None = None) -> Step:
        """The step that makes a usable wire: see `ready`."""
        return (lambda: self.ready(until, retry_until), lambda: self.aready(until, retry_until))

    def answering(self, wire: _core.Wire, answer: _core.Answer, timeout: float) -> Step:
        """The step that waits for an answer. A server that is late counts as lost."""
        return (
            lambda: self.await_(wire, answer, timeout),
            lambda: self.aawait(wire, answer, timeout),
        )

    def waiting(self, wire: _core.Wire, answer: _core.Answer, timeout: float | None) -> Step:
        """The step that waits for an answer for so long, and returns whether it arrived."""
        return (lambda: wire.wait(answer, timeout), lambda: self.attend(wire).wait(answer, timeout))

    def _last(self, wire: _core.Wire, answer: _core.Answer) -> _core.Answer:
        """The answer of the last attempt. Raises ConnectionLost if it was lost."""
        if answer.lost:
            raise self.lost(wire, wire.may_have_arrived(answer))
        return answer

    def await_(self, wire: _core.Wire, answer: _core.Answer, timeout: float) -> None:
        """Wait for the answer. A server that does not answer in time counts as lost."""
        try:
            answered = wire.wait(answer, timeout)
        except BaseException:
            wire.forget(answer)
            raise
        if not answered:
            self.give_up(wire)

    def give_up(self, wire: _core.Wire) -> None:
        """Drop the connection: the server has not answered in time."""
        self._let_go(wire)
        wire.close(f"no answer within {self.target.request_timeout} s")

    def retire(self, wire: _core.Wire) -> None:
        """Abandon the wire of a server that is shutting down; another server takes its place."""
        self._let_go(wire)
        wire.close("the server is shutting down")

    def _is_to_be_repeated(
        self, wire: _core.Wire, answer: _core.Answer, again: bool, until: float
    ) -> bool:
        if not answer.lost:
            if answer.status != Status.SHUTTING_DOWN:
                return False
            self.retire(wire)
            return time.monotonic() < until  # another server takes its place
        if self.closed:
            raise self.closed_error()
        if wire.fatal and wire.fatal != Status.TIMED_OUT:
            raise self.ended(wire)
        arrived = wire.may_have_arrived(answer)
        if not wire.is_confused and (again or not arrived) and time.monotonic() < until:
            return True
        raise self.lost(wire, arrived)

    def ended(self, wire: _core.Wire) -> errors.ShmqError:
        """The error with which the server ended the connection."""
        said = wire.problem if wire.problem != "the server closed the connection" else ""
        return error_of_status(wire.fatal, self.what, said or "")

    def check_stream(
        self,
        wire: _core.Wire,
        stream: _core.Answer,
        refused: Callable[[_core.Answer], errors.ShmqError],
    ) -> None:
        """Raise the error that ended a subscription, unless another connection may continue it."""
        if stream.lost:
            if self.closed:
                raise self.closed_error()
            if wire.fatal and wire.fatal != Status.TIMED_OUT:
                raise self.ended(wire)
            if wire.is_confused:
                raise self.lost(wire)
        elif stream.status == Status.SHUTTING_DOWN:
            self.retire(wire)
        else:
            raise refused(stream)

    def lost(self, wire: _core.Wire, arrived: bool = True) -> errors.ConnectionLost:
        """The error for a connection that was lost before the answer."""
        tail = "whether it was carried out is unknown" if arrived else "it was not carried out"
        return errors.ConnectionLost(
            f"the connection to {self.url} was lost ({wire.problem}) before the answer to a "
            f"request about {self.what} came: {tail}"
        )

    # ---- asyncio ----

    async def aready(self, until: float, retry_until: float | None = None) -> _core.Wire:
        """``ready`` for asyncio."""
        wire = self.wire
        if wire is not None and wire.is_usable:
            return wire
        return await run_blocking(self.ready, until, retry_until)

    async def aawait(self, wire: _core.Wire, answer: _core.Answer, timeout: float) -> None:
        """``await_`` for asyncio."""
        try:
            answered = await self.attend(wire).wait(answer, timeout)
        except BaseException:
            wire.forget(answer)
            if answer.messages:
                wire.give_back(answer.messages)
            raise
        if not answered:
            self.give_up(wire)

    def attend(self, wire: _core.Wire) -> LoopDriver:
        """The driver with which the running loop waits for answers of this wire."""
        loop = asyncio.get_running_loop()
        loop_driver = self._loop_drivers.get(id(loop))
        if loop_driver is None or loop_driver.loop is not loop or loop_driver.wire is not wire:
            loop_driver = self._loop_drivers[id(loop)] = LoopDriver(loop, wire)
        return loop_driver


class RemoteHandle:
    """A handle of a queue or stream of a server, with a connection of its own."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection = connection
        self._name = connection.name
        self._namespace = namespace

    @property
    def name(self) -> str:
        """The name of the queue or stream."""
        return self._name

    @property
    def connection(self) -> Connection:
        """The connection of its requests."""
        return self._connection

    @property
    def closed(self) -> bool:
        """Whether the handle was closed."""
        return self._connection.closed

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.drop()


def _in_child() -> None:
    for connection in list(_all):
        connection.leave()


os.register_at_fork(after_in_child=_in_child)
