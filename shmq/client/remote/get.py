"""Getting messages of a server: one round trip if there are any, else a cancellable wait."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from shmq import api
from shmq.client.remote.connection import Attempt
from shmq.client.shared import loop_timer
from shmq.client.shared.backoff import Backoff
from shmq.display import sample
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.opcodes import FOREVER, Status, Type

#: How long a CONSUME waits at the server, in ms. It cannot be cancelled, so a longer wait is a
#: subscription, which can.
_SHORTLY = 100
#: From this many messages on, a server may have sent only a part.
_LARGE = 1024
#: How long to wait until the end of a subscription is confirmed, in seconds.
_ENDING = 5.0


def first_wait(block: bool, timeout: float | None) -> int:
    """How long the first CONSUME of a get waits at the server, in ms."""
    if not block or timeout == 0:
        return 0
    return _SHORTLY if timeout is None else min(_SHORTLY, max(1, int(timeout * 1000)))


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
        self._acks = queue.acks

    def run(self, block: bool, timeout: float | None, first: Attempt | None = None) -> list[Any]:
        """The messages; empty if none came in time. ``first``: a CONSUME sent for them already."""
        until = None
        if timeout is not None:
            until = (time.monotonic() if first is None else first.began) + timeout
        waits = block and timeout != 0
        messages = self._consume(first_wait(block, timeout), first)
        if len(messages) >= _LARGE:
            messages = self._with_rest(messages)
        backoff = None
        while not messages and waits and (until is None or time.monotonic() < until):
            ended, messages = self._subscribe(until)
            if ended:
                break
            backoff = backoff or Backoff()
            time.sleep(backoff.pause(None if until is None else until - time.monotonic()))
        if not messages:
            self._queue.found_nothing()
        return messages

    def _consume(self, wait_ms: int, first: Attempt | None = None) -> list[Any]:
        connection = self._connection
        asked: list[tuple[_core.Wire, _core.Answer]] = []
        if first is not None:
            asked = [(first.wire, first.answer)]

        def write(wire: _core.Wire) -> _core.Answer:
            answer = self._ask(wire, wait_ms)
            asked[:] = [(wire, answer)]
            return answer

        try:
            answer = connection.call(write, again=True, wait=wait_ms / 1000, first=first)
        except KeyboardInterrupt:
            # The server may still deliver to it: that is returned at once, not at the lease's end.
            for wire, answer in asked:
                wire.take_back(answer, wait_ms / 1000 + _ENDING)
            raise
        return self._messages(answer)

    def _ask(self, wire: _core.Wire, wait_ms: int) -> _core.Answer:
        answer = wire.consume(self._most, wait_ms, self._lease, self._where)
        if self._acks is not None:
            wire.ride(answer, self._acks)
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
            raise self._queue.error(answer)
        return answer.messages

    def _subscribe(self, until: float | None) -> tuple[bool, list[Any]]:
        """Wait for a message: returns whether the time is over, and what came."""
        connection = self._connection
        wire = connection.ready(time.monotonic() + connection.target.request_timeout)
        stream = self._wait_for_one(wire)
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
        answer = await self._connection.acall(lambda wire: self._ask(wire, 0), again=True)
        messages = self._messages(answer)
        backoff = None
        while not messages and timeout != 0 and (until is None or time.monotonic() < until):
            ended, messages = await self._asubscribe(until)
            if ended:
                break
            backoff = backoff or Backoff()
            left = None if until is None else until - time.monotonic()
            await loop_timer.sleep(backoff.pause(left))
        if not messages:
            self._queue.found_nothing()
        return messages

    async def _asubscribe(self, until: float | None) -> tuple[bool, list[Any]]:
        connection = self._connection
        wire = await connection.aready(time.monotonic() + connection.target.request_timeout)
        stream = self._wait_for_one(wire)
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


def nack_of(delay: float | None, counted: bool) -> tuple[Type, int]:
    """The request that returns messages after ``delay`` seconds, and its time in ms."""
    if counted:
        return Type.NACK, FOREVER if delay is None else _core.milliseconds("delay", delay)
    return Type.RETURN, _core.milliseconds("delay", delay or 0)


class _Run:
    """The common part of a batch and a packed batch."""

    def __init__(self, queue: Any, messages: list[Any]) -> None:
        self._queue = queue
        self._receipts = _core.receipts_of(messages)
        self._last = messages[-1] if messages else None  # handed out: none of them was settled
        self._settled = False

    def __del__(self) -> None:
        last = getattr(self, "_last", None)
        if last is not None and _core.is_leased(last):
            _core.warn_dropped(
                f"a batch of {len(self._receipts)} messages, up to {last.sequence}, of queue "
                f"{self._queue.name!r}",
                frames=2,
            )

    @property
    def receipts(self) -> list[int]:
        self._last = None
        return list(self._receipts)

    @property
    def settled(self) -> bool:
        return self._settled

    def ack(self) -> list[int]:
        return self._settle(Type.ACK, None)

    def nack(self, delay: float | None = None, *, counted: bool = True) -> list[int]:
        return self._settle(*nack_of(delay, counted))

    def _settle(self, kind: int, argument: int | None) -> list[int]:
        refused: list[int] = []
        if not self._settled and self._receipts:
            refused = self._queue.settle(kind, self._receipts, argument)
        self._settled = True
        self._receipts = []
        self._last = None
        return refused


class RemoteBatch(_Run, api.Batch):
    """Implements :class:`shmq.api.Batch`."""

    def __init__(self, queue: Any, bodies: list[Any], messages: list[Any]) -> None:
        super().__init__(queue, messages)
        self._bodies = bodies

    @property
    def bodies(self) -> list[Any]:
        return self._bodies

    def __len__(self) -> int:
        return len(self._bodies)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._bodies)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "queue", self._queue.name
        yield "messages", len(self._bodies)
        yield from sample(self._bodies)

    def __repr__(self) -> str:
        return f"<Batch of {len(self._bodies)} messages of {self._queue.name!r}>"


class RemotePacked(_Run, api.Packed):
    """Implements :class:`shmq.api.Packed`."""

    def __init__(self, queue: Any, messages: list[Any]) -> None:
        super().__init__(queue, messages)
        self._data, self._count, self._size, self._each = _core.packed_of(messages)

    @property
    def data(self) -> bytes:
        return self._data

    @property
    def size(self) -> int | None:
        return self._size

    @property
    def lengths(self) -> memoryview:
        if self._each is None:
            self._each = array("I", [self._size or 0]).tobytes() * self._count
        return memoryview(self._each).cast("I")

    @property
    def offsets(self) -> memoryview:
        places = array("Q", accumulate(self.lengths, initial=0))
        return memoryview(places.tobytes()).cast("Q")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for length in self.lengths:
            yield self._data[start : start + length]
            start += length

    def __repr__(self) -> str:
        return f"<Packed of {len(self)} records, {len(self._data)} bytes, of {self._queue.name!r}>"
