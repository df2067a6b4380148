"""WebSockets: ``GET /ws`` consumes and produces from a browser, with credit.

Frames are JSON objects. A client sends::

    {"consume": "orders", "credit": 64, "where": "priority > 1"}   begin, or change
    {"cancel": "orders"}                                           consume no more
    {"credit": 8, "queue": "orders"}                               another credit
    {"ack": RECEIPT}  {"nack": RECEIPT, "delay": 5, "counted": false}  {"reject": RECEIPT}
    {"extend": RECEIPT, "seconds": 30}
    {"put": {"queue": "orders", "body": …}}

Credit is how many messages of a queue may be sent and not settled. Any frame may have an ``id``:
then its answer or its problem has it, too; without one only a put and a problem are answered. It
receives ``{"message": …, "queue": …}``, ``{"put": …}``, ``{"done": …}`` and ``{"problem": …}``.
What is not settled when the socket closes returns to its queue. It is closed with 1012 when the
console ends, 1003 for a binary frame, 1008 when its token or login is no longer accepted, and 1009
for a frame above 1 MiB. A right that a frame is refused is an event of the audit.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
import anyio.abc
import msgspec
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

import shmq
from shmq.extras.console.access import Caller
from shmq.extras.console.api.leases import Reported, settle_one
from shmq.extras.console.api.messages import NewMessage, properties_of, view_of
from shmq.extras.console.api.operation import LONGEST, Call
from shmq.extras.console.api.routes import API, admit, decode, encode, problem_answer
from shmq.extras.console.context import Console, in_thread
from shmq.extras.console.leases import LeaseSession
from shmq.extras.console.live import End, LiveConnections
from shmq.extras.console.problem import Problem, problem_of
from shmq.extras.console.request_checks import Guard, check_change_allowed
from shmq.host.supervision.audit import Actor, Event, EventLimit, Value, record
from shmq.protocol.opcodes import Right

PROTOCOL: Final = "shmq.v1"
#: The most WebSockets at a time.
MOST_SOCKETS: Final = 200
#: The most queues that one socket consumes at a time, and the most credit of one.
MOST_CONSUMED: Final = 16
MOST_CREDIT: Final = 1000
_CREDIT: Final = 64
#: How many messages are leased, and sent, in one go.
_BATCH: Final = 64
#: The threads that do what may wait for a lock, for all sockets.
_THREADS: Final = 32
#: An expression is tested in the event loop on so many messages at most: a millisecond.
_MOST_TESTED: Final = 1000
#: How often it is looked whether they are still so few, or so many, in seconds.
_TESTED_AGAIN: Final = 1.0
#: How long a socket may take to close, in seconds.
_PATIENCE: Final = 5.0

_ENDED: Final = {"ending": (1012, "the console ends"), "unauthorized": (1008, "token withdrawn")}
_T = TypeVar("_T")


class _Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str | int | None = None


class Consume(_Frame, frozen=True, kw_only=True):
    """Begin to consume a queue, or go on with another credit."""

    consume: str
    credit: int = _CREDIT
    where: str | None = None


class Cancel(_Frame, frozen=True, kw_only=True):
    """Consume a queue no more; what was sent can still be settled."""

    cancel: str


class Credit(_Frame, frozen=True, kw_only=True):
    """Another credit of one queue, or of all that are consumed."""

    credit: int
    queue: str | None = None


class Ack(_Frame, frozen=True, kw_only=True):
    """Acknowledge a message."""

    ack: str


class Nack(_Frame, frozen=True, kw_only=True):
    """Return a message to its queue."""

    nack: str
    delay: float | None = None
    counted: bool = True
    error: str | Reported | None = None


class Reject(_Frame, frozen=True, kw_only=True):
    """Make a message a dead letter."""

    reject: str
    error: str | Reported | None = None


class Extend(_Frame, frozen=True, kw_only=True):
    """Set the end of a lease to so many seconds from now."""

    extend: str
    seconds: float


class NewPut(NewMessage, frozen=True, kw_only=True):
    """A message, and the queue for it."""

    queue: str


class Put(_Frame, frozen=True, kw_only=True):
    """Put a message."""

    put: NewPut


#: By the key that tells what a frame is; the first that it has counts.
_FRAMES: Final[dict[str, type[_Frame]]] = {
    "consume": Consume,
    "cancel": Cancel,
    "ack": Ack,
    "nack": Nack,
    "reject": Reject,
    "extend": Extend,
    "put": Put,
    "credit": Credit,
}


def frame_of(text: str) -> _Frame:
    """The frame in ``text``. Raises :class:`Problem` that names the field."""
    given = decode(text.encode("utf-8", "surrogatepass"), dict[str, Any])
    kind = next((kind for key, kind in _FRAMES.items() if key in given), None)
    if kind is None:
        raise Problem.invalid(f"a frame has one of the keys {', '.join(_FRAMES)}")
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise Problem.invalid(f"the frame is not what is asked for: {error}") from None


def subject_of(frame: _Frame) -> tuple[str, str]:
    """What the frame asks for, and the name of its queue: for the audit; "" if it names none."""
    operation = type(frame).__name__.lower()
    match frame:
        case Put():
            return operation, frame.put.queue
        case Consume():
            return operation, frame.consume
        case (
            Ack(ack=receipt) | Nack(nack=receipt) | Reject(reject=receipt) | Extend(extend=receipt)
        ):
            return operation, _queue_of(receipt)
    return "", ""


def _queue_of(receipt: str) -> str:
    return receipt.partition(".")[2].rpartition(".")[0]


def routes() -> list[WebSocketRoute]:
    """The route of the sockets."""
    return [WebSocketRoute(f"{API}/ws", _serve_socket)]


async def _serve_socket(websocket: WebSocket) -> None:
    console: Console = websocket.app.state.console
    try:
        caller = await _admit(console, websocket)
        sockets = _get_sockets(websocket)
        socket = _Socket(console, caller, websocket)
        with sockets.enter(caller, socket.end):
            await socket.run()
    except (Problem, shmq.ShmqError) as error:
        with contextlib.suppress(WebSocketDisconnect):
            await websocket.send_denial_response(problem_answer(error))


async def _admit(console: Console, websocket: WebSocket) -> Caller:
    """Who opens the socket. Raises Problem, as a request that changes something does.

    A browser sends its origin with each socket, which stands in for the CSRF header.
    """
    Guard(console).check(websocket)
    caller = await admit(console, websocket)
    check_change_allowed(console)
    if PROTOCOL not in websocket.scope.get("subprotocols", ()):
        raise Problem.invalid(f"this socket speaks the subprotocol {PROTOCOL}: ask for it")
    return caller


def _get_sockets(websocket: WebSocket) -> LiveConnections:
    """The connections of this application, made for the first socket."""
    state = websocket.app.state
    if not hasattr(state, "websockets"):
        state.websockets = LiveConnections(state.console, MOST_SOCKETS, "WebSockets")
        state.websocket_threads = anyio.CapacityLimiter(_THREADS)
    found: LiveConnections = state.websockets
    return found


class _Refusals:
    """The rights that one socket is refused, for the audit: the first ten, then one a second."""

    def __init__(self, caller: Caller) -> None:
        self._actor = Actor(who=caller.name, peer=caller.peer, via="http")
        self._limit = EventLimit()

    def add(self, operation: str, name: str) -> None:
        """Record one, or count it if there were many."""
        more = self._limit.take()
        if more is not None:
            self._record(name, {"operation": operation, **more})

    def close(self) -> None:
        """Record how many were left out at the end."""
        if self._limit.left_out:
            self._record("", {"left_out": self._limit.left_out})

    def _record(self, name: str, details: dict[str, Value]) -> None:
        record(Event.RIGHT_REFUSED, name, "denied", self._actor, **details)


class _Consumer:
    """One queue that a socket consumes."""

    def __init__(self, queue: str, credit: int, where: str | None) -> None:
        self.queue = queue
        self.credit = credit
        self.where = where
        self.scope = anyio.CancelScope()
        #: Set when a message was settled, or the credit raised.
        self.room = asyncio.Event()


class _Socket:
    """One open socket: its session of leases, and what it consumes."""

    session: LeaseSession
    _tasks: anyio.abc.TaskGroup

    def __init__(self, console: Console, caller: Caller, websocket: WebSocket) -> None:
        self._console = console
        self._caller = caller
        self._websocket = websocket
        self._call = Call(console=console, caller=caller, given={})
        self._refusals = _Refusals(caller)
        self._consumers: dict[str, _Consumer] = {}
        self._sending = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._why: tuple[int, str] | None = None

    def end(self, why: End) -> None:
        """Close the socket soon."""
        self._close(*_ENDED[why])

    def _close(self, code: int, reason: str) -> None:
        if self._why is None:
            self._why = (code, reason)
        self._scope.cancel()

    async def _run_in_thread(self, work: Callable[..., _T], *given: Any) -> _T:
        limiter = self._websocket.app.state.websocket_threads
        return await in_thread(work, *given, limiter=limiter)

    async def run(self) -> None:
        """Speak with the client until one of both ends it; then what it holds returns."""
        book = self._console.leases
        with contextlib.ExitStack() as stack:
            self.session = await self._run_in_thread(
                stack.enter_context, book.session(self._caller.name)
            )
            try:
                await self._websocket.accept(PROTOCOL)
                with self._scope:
                    async with anyio.create_task_group() as self._tasks:
                        await self._receive()
                        self._scope.cancel()
            finally:
                self._refusals.close()
                with anyio.CancelScope(shield=True):
                    await self._run_in_thread(book.end, self.session.id, self._caller.name)
                    await self._run_in_thread(stack.close)
                    await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        if self._why is not None:
            with (
                anyio.move_on_after(_PATIENCE),
                contextlib.suppress(WebSocketDisconnect, RuntimeError),
            ):
                await self._websocket.close(*self._why)

    # ---- what the client sends ----

    async def _receive(self) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                self._close(1003, "frames are JSON texts")
                return
            await self._handle(text)

    async def _handle(self, text: str) -> None:
        shown: dict[str, Any] = {}
        subject = ("", "")
        try:
            frame = frame_of(text)
            subject = subject_of(frame)
            if frame.id is not None:
                shown["id"] = frame.id
            answer = await self._do(frame)
        except Exception as error:  # noqa: BLE001 - one that is not a refusal is raised again
            await self._report_failure(error, shown, *subject)
            return
        if answer is not None:
            await self._send({**answer, **shown})
        elif shown:
            await self._send({"done": True, **shown})

    async def _report_failure(
        self, error: Exception, shown: dict[str, Any], operation: str, name: str
    ) -> None:
        """Tell the client of a failure; one of the console itself ends the socket."""
        problem = problem_of(error)
        if problem is None:
            raise error
        if problem.refuses_right:
            self._refusals.add(operation, name)
        await self._send({"problem": problem.as_dict(), **shown})

    async def _do(self, frame: _Frame) -> dict[str, Any] | None:
        """Do what the frame asks for; its answer, or None."""
        match frame:
            case Consume():
                self._consume(frame)
            case Cancel():
                self._get_consumer(frame.cancel).scope.cancel()
            case Credit():
                self._give_credit(frame)
            case Ack():
                await self._settle(frame.ack, "ack")
            case Nack():
                await self._settle(
                    frame.nack, "nack", delay=frame.delay, counted=frame.counted, error=frame.error
                )
            case Reject():
                await self._settle(frame.reject, "reject", error=frame.error)
            case Extend():
                await self._settle(frame.extend, "extend", seconds=frame.seconds)
            case Put():
                return {"put": await self._run_in_thread(self._put, frame.put)}
        return None

    async def _settle(self, receipt: str, how: str, **more: Any) -> None:
        await self._run_in_thread(functools.partial(settle_one, self._call, receipt, how, **more))
        for consumer in self._consumers.values():
            consumer.room.set()

    def _put(self, given: NewPut) -> dict[str, Any]:
        name = given.queue
        self._call.need(Right.PRODUCE, "queue", name)
        body, properties = properties_of(given)
        queue = self._queue(name)
        try:
            done = queue.put(body, False, LONGEST, **properties)  # for the disk
        except shmq.QueueDeleted:
            self._console.leases.drop_queue(self.session, name)
            raise
        return {"queue": name, "sequence": done.sequence, "duplicate": done.duplicate}

    def _queue(self, name: str) -> shmq.Queue:
        return self._console.leases.queue(self.session, name)

    # ---- what it consumes ----

    def _get_consumer(self, name: str) -> _Consumer:
        found = self._consumers.get(name)
        if found is None:
            raise Problem.invalid(f"queue {name[:255]!r} is not consumed by this socket")
        return found

    def _consume(self, frame: Consume) -> None:
        name = frame.consume
        self._call.need(Right.CONSUME, "queue", name)
        _check_credit(frame.credit)
        if name in self._consumers:
            raise Problem.invalid(f"queue {name!r} is consumed already: cancel it first")
        if len(self._consumers) >= MOST_CONSUMED:
            raise Problem(429, "too-many", f"a socket consumes at most {MOST_CONSUMED} queues")
        made = self._consumers[name] = _Consumer(name, frame.credit, frame.where)
        self._tasks.start_soon(self._run, made)

    def _give_credit(self, frame: Credit) -> None:
        _check_credit(frame.credit)
        names = [frame.queue] if frame.queue is not None else list(self._consumers)
        for consumer in [self._get_consumer(name) for name in names]:
            consumer.credit = frame.credit
            consumer.room.set()

    async def _run(self, consumer: _Consumer) -> None:
        """Send the queue's messages as credit allows, until it is cancelled or fails."""
        try:
            with consumer.scope:
                queue = await self._run_in_thread(self._queue, consumer.queue)
                while True:
                    await self._send_some(consumer, queue)
        except Exception as error:  # noqa: BLE001 - one that is not a refusal is raised again
            if isinstance(error, shmq.QueueDeleted):
                self._console.leases.drop_queue(self.session, consumer.queue)
            await self._report_failure(error, {"queue": consumer.queue}, "consume", consumer.queue)
        finally:
            if self._consumers.get(consumer.queue) is consumer:
                del self._consumers[consumer.queue]

    async def _send_some(self, consumer: _Consumer, queue: shmq.Queue) -> None:
        held = self.session.held.setdefault(consumer.queue, set())
        while len(held) >= consumer.credit:
            consumer.room.clear()
            if len(held) >= consumer.credit:
                await consumer.room.wait()
        first = await self._get_first(queue, consumer.where)
        held.add(first.receipt)  # no await before: a cancelled task has taken nothing
        most = min(consumer.credit - len(held), _BATCH)
        for frame in await self._run_in_thread(
            self._make_frames, consumer, queue, first, held, most
        ):
            await self._send_bytes(frame)

    async def _get_first(self, queue: shmq.Queue, where: str | None) -> shmq.Message:
        """The next message that is meant; a wait that is cancelled has taken none.

        An expression is tested on all messages that wait whenever one arrives: if these are many,
        by a thread and with pauses, so that the loop serves all others in the meantime.
        """
        if where is None:
            return await queue.aget()
        while True:
            if await self._run_in_thread(queue.qsize) <= _MOST_TESTED:
                with contextlib.suppress(shmq.Empty):
                    return await queue.aget(_TESTED_AGAIN, where=where)
                continue
            began = time.monotonic()
            try:
                return await self._run_in_thread(functools.partial(queue.get, False, where=where))
            except shmq.Empty:
                took = time.monotonic() - began
            await anyio.sleep(min(max(10 * took, 0.05), _TESTED_AGAIN))

    def _make_frames(
        self, consumer: _Consumer, queue: shmq.Queue, first: shmq.Message, held: set[int], most: int
    ) -> list[bytes]:
        """The frames of the first message and of up to ``most`` others that are there."""
        found = [first]
        if most > 0:
            found += queue.get_many(most, block=False, where=consumer.where)
        frames = []
        for message in found:
            held.add(message.receipt)
            view = view_of(message, f"{self.session.id}.{consumer.queue}.{message.receipt}")
            frames.append(encode({"message": view, "queue": consumer.queue}))
        return frames

    # ---- what is sent ----

    async def _send(self, frame: dict[str, Any]) -> None:
        await self._send_bytes(encode(frame))

    async def _send_bytes(self, frame: bytes) -> None:
        async with self._sending:
            try:
                await self._websocket.send_text(frame.decode())
            except (WebSocketDisconnect, RuntimeError):  # the client has gone
                self._scope.cancel()


def _check_credit(credit: int) -> None:
    if not 0 <= credit <= MOST_CREDIT:
        raise Problem.invalid(f"credit={credit}: give 0 to {MOST_CREDIT}")
