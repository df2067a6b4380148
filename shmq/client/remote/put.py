"""Puts to a queue of a server: encoded, sent, repeated after a lost connection."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from shmq import api, errors
from shmq.api.options import QueueOptions
from shmq.client.remote.connection import Connection
from shmq.client.remote.durable_wait import confirmed
from shmq.client.shared.backoff import RoomBackoff
from shmq.errors import MessageTooLarge
from shmq.fork_safe import new_lock
from shmq.model.codec import codecs
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.queue import QueueState
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import error_of

#: The longest payload of one PRODUCE_BATCH, in bytes: a compromise between round trips and the
#: server's memory.
_BATCH_BYTES = 4 << 20

#: The pauses before a put is repeated that was lost, and that met a server that shuts down.
_LOST_PAUSE, _SHUT_PAUSE = 0.001, 0.05

#: An item of PRODUCE_BATCH: bytes without properties, or packed properties and a buffer.
Item = bytes | tuple[bytes | None, Any]

_FIXMAP, _MAP16 = 0x80, 0xDE
_MOST_FIXED = 15

_CODEC = {
    number: codecs.pack_properties({"codec": name})[1:] for number, name in enumerate(codecs.CODECS)
}
_PLAIN = {number: bytes([_FIXMAP + 1]) + entry for number, entry in _CODEC.items()}


class _Ids:
    """Unique ids: a prefix of the process and a number."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.prefix = ""

    def next(self) -> str:
        if not self.prefix:
            self.prefix = secrets.token_hex(8)
        return f"{self.prefix}.{next(self._numbers):x}"

    def renew(self) -> None:
        """Take a new prefix in the child of a fork, which is another process."""
        self.prefix = ""


_ids = _Ids()


def encode(
    body: Any, priorities: int, properties: Mapping[str, Any], encoded: bool = False
) -> tuple[bytes | None, Any]:
    """The packed properties, or None, and the body as a buffer. Raises what ``put`` raises."""
    wanted: dict[str, Any] = dict.fromkeys(_ARGUMENTS)
    for key, value in properties.items():
        if key not in wanted:
            raise TypeError(f"put() got an unexpected keyword argument {key!r}")
        wanted[key] = value
    buffer, number, meta, *_ = _core.encode_message(
        body, priorities=priorities, encoded=encoded, **wanted
    )
    if 0 < number < len(codecs.CODECS):
        meta = _with_entry(meta, _CODEC[number]) if meta else _PLAIN[number]
    return meta or None, buffer


_ARGUMENTS = (
    "codec",
    "priority",
    "group",
    "headers",
    "delay",
    "deliver_at",
    "ttl",
    "dedupe_id",
    "reply_to",
    "correlation",
)


def _with_entry(meta: bytes, entry: bytes) -> bytes:
    """The packed map with one more entry."""
    count = meta[0] - _FIXMAP
    if count < _MOST_FIXED:
        return bytes([meta[0] + 1]) + meta[1:] + entry
    return bytes([_MAP16, 0, count + 1]) + meta[1:] + entry


def with_id(meta: bytes | None) -> bytes:
    """The packed properties with a generated dedupe id."""
    entry = codecs.pack_properties({"dedupe": _ids.next()})
    return entry if meta is None else _with_entry(meta, entry[1:])


#: The server's URL, the namespace, and the queue's name.
QueueKey = tuple[str, str, str]

_waiting_puts: collections.Counter[QueueKey] = collections.Counter()
_waiting_lock = new_lock()


@contextlib.contextmanager
def waiting_put(key: QueueKey) -> Iterator[None]:
    """Count a put that waits for room, by retrying, during the block."""
    with _waiting_lock:
        _waiting_puts[key] += 1
    try:
        yield
    finally:
        with _waiting_lock:
            _waiting_puts[key] -= 1
            if not _waiting_puts[key]:
                del _waiting_puts[key]


def waiting_puts(key: QueueKey) -> int:
    """How many puts of this process wait for room in the queue."""
    with _waiting_lock:
        return _waiting_puts[key]


def _in_child() -> None:
    _ids.renew()
    _waiting_puts.clear()


os.register_at_fork(after_in_child=_in_child)


def check_many(bodies: object) -> None:
    """Raise TypeError for one body in place of many."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | dict):
        raise TypeError(
            f"bodies={bodies!r:.60} is one body, not many: put it in a list, or use put"
        )


def never_fits(name: str, options: QueueOptions, size: int, more: int) -> MessageTooLarge:
    """The error for a body of ``size`` bytes, with ``more`` of properties, that no put takes."""
    return MessageTooLarge(
        f"a body of {size} bytes with {more} bytes of properties can never fit into queue "
        f"{name!r}: max_message_bytes={options.max_message_bytes}, "
        f"arena_bytes={options.arena_bytes}"
    )


def is_full(name: str, options: QueueOptions, why: str | None = None) -> errors.Full:
    """The error for a queue without room."""
    return errors.Full(
        f"queue {name!r} is full: it holds at most {options.capacity} messages and "
        f"{options.arena_bytes} bytes; {why or 'consume, wait (block=True), or make it larger'}"
    )


class RemotePuts:
    """The puts to one queue of a server: sent, repeated after a lost connection, and waited for.

    A put of a queue with a dedupe window gets a generated id unless the application gives it one,
    so that it can be repeated.
    """

    def __init__(self, connection: Connection, namespace: str, options: QueueOptions) -> None:
        self.connection = connection
        self.name = connection.name
        self.options = options
        #: Whether puts get a generated dedupe id.
        self.identified = options.dedupe_window > 0
        self.key: QueueKey = (connection.url, namespace, connection.name)
        self._window = options.dedupe_window
        self._patience = connection.target.request_timeout
        self._waits = options.overflow == "block"

    # ---- the queue's state, and refusals ----

    def state(self) -> QueueState:
        """The queue's current state. Raises the error of a refusal."""
        answer = self.connection.call(lambda wire: wire.request(Type.STATS, True, b""), again=True)
        self._check(answer)
        return QueueState.unpack(answer)

    def is_full(self) -> bool:
        """Whether the queue holds as many messages as it can."""
        found = self.state().stats
        held = found.depth + found.delayed + found.in_flight + found.dying
        return held >= self.options.capacity

    def _check(self, answer: _core.Answer) -> None:
        if answer.status != Status.OK:
            raise self.error(answer)

    def error(self, answer: _core.Answer, *, described: bool = False) -> errors.ShmqError:
        """The error that a refusal means; ``described``: the server says what is full."""
        if answer.status == Status.NO_QUEUE:
            return errors.QueueDeleted(f"queue {self.name!r} was deleted")
        if answer.status == Status.QUEUE_FULL:
            return errors.Full((answer.payload or b"").decode()) if described else self.full()
        return error_of(answer, f"queue {self.name!r}")

    def full(self, why: str | None = None) -> errors.Full:
        """The error for a queue without room."""
        return is_full(self.name, self.options, why)

    def _why_unwritten(self) -> str | None:
        """The server's report on slots that wait for its disk; None: there are none."""
        if self.options.durability == "memory":
            return None
        with contextlib.suppress(errors.ShmqError):
            return self.state().unwritten
        return None

    async def awhy_unwritten(self) -> str | None:
        """The server's report on slots that wait for its disk, for asyncio."""
        if self.options.durability == "memory":
            return None
        with contextlib.suppress(errors.ShmqError):
            answer = await self.connection.acall(
                lambda wire: wire.request(Type.STATS, True, b""), again=True
            )
            if answer.status == Status.OK:
                return QueueState.unpack(answer).unwritten
        return None

    # ---- one message ----

    def put(
        self,
        meta: bytes | None,
        body: Any,
        block: bool | None,
        timeout: float | None,
        known: bool,
        durable: bool,
    ) -> api.Put:
        """Put an encoded message; ``known``: the application gave it a dedupe id."""
        self.check_size(body, meta)
        if self.identified and not known:
            meta = with_id(meta)
        wire = self.connection.wire
        if wire is None or not wire.is_usable:
            wire = self.connection.ready(time.monotonic() + self._patience)
        began = time.monotonic()
        if durable:
            answer: Any = wire.produce(meta, body, True)
            confirmed(self, wire, answer, None if timeout is None else began + timeout)
        else:
            answer = wire.put(meta, body, self._patience)
            if type(answer) is _core.Put:
                return answer
        return self.put_again(began, wire, answer, meta, body, block, timeout, known, durable)

    def put_again(
        self,
        began: float,
        wire: _core.Wire,
        answer: Any,
        meta: bytes | None,
        body: Any,
        block: bool | None,
        timeout: float | None,
        known: bool,
        durable: bool = False,
    ) -> api.Put:
        """Handle the outcome of a first attempt: if it was refused or lost, wait or repeat it.

        It ``began`` at that time (monotonic).
        """
        waits = self.waits(block, timeout)
        until = None if timeout is None else began + timeout
        backoff = RoomBackoff()
        if not answer.done:
            self.connection.give_up(wire)
        while answer.lost or answer.status in (Status.QUEUE_FULL, Status.SHUTTING_DOWN):
            if answer.status == Status.QUEUE_FULL and not answer.lost:
                left = None if until is None else until - time.monotonic()
                if not waits or (left is not None and left <= 0):
                    raise self.full(self._why_unwritten())
                with waiting_put(self.key):
                    time.sleep(backoff.pause(left))
                began = time.monotonic()  # a refused put was not taken
            else:
                self._check_repeatable(wire, answer, began)
            wire = self.connection.ready(time.monotonic() + self._patience)
            answer = wire.produce(meta, body, durable)
            self.await_put(wire, answer, durable, until)
        if answer.status == Status.DUPLICATE:
            # With a generated id, the first put with that id was our own first attempt.
            return _core.new_put(answer.number, known or not self.identified)
        self._check(answer)
        return _core.new_put(answer.number, False)

    def await_put(
        self, wire: _core.Wire, answer: _core.Answer, durable: bool, until: float | None = None
    ) -> None:
        """Wait until the answer to a put has come, or is lost. Raises NotConfirmed."""
        if durable:
            confirmed(self, wire, answer, until)
        else:
            self.connection.await_(wire, answer, self._patience)

    def _check_repeatable(self, wire: _core.Wire, answer: Any, began: float) -> None:
        """Raise ConnectionLost unless the put can be repeated without a duplicate."""
        connection = self.connection
        if connection.closed:
            raise connection.closed_error()
        if not answer.lost:
            connection.retire(wire)
        elif wire.fatal and wire.fatal != Status.TIMED_OUT:
            raise connection.ended(wire)
        passed = time.monotonic() - began
        safe = self.identified and passed < self._window
        arrived = answer.lost and wire.may_have_arrived(answer)
        if wire.is_confused or passed > self._patience or (arrived and not safe):
            lost = connection.lost(wire, arrived)
            hint = (
                ""
                if safe or not arrived
                else ("; on a queue with a dedupe_window it would have been sent again")
            )
            raise errors.ConnectionLost(f"{lost}{hint}")
        time.sleep(_LOST_PAUSE if answer.lost else _SHUT_PAUSE)

    def waits(self, block: bool | None, timeout: float | None) -> bool:
        """Whether a put waits for room."""
        waits = (self._waits or timeout is not None) if block is None else bool(block)
        return waits and timeout != 0

    def check_size(self, body: Any, meta: bytes | None) -> None:
        """Raise MessageTooLarge for a message that can never be put."""
        self.check_bytes(len(body) if type(body) is bytes else memoryview(body).nbytes, meta)

    def check_bytes(self, size: int, meta: bytes | None) -> None:
        """Raise MessageTooLarge for a body of that size that can never be put."""
        wire = self.connection.wire
        frame = 1 << 32 if wire is None else wire.max_frame
        o, more = self.options, len(meta or b"")
        if size > o.max_message_bytes or size + more > o.arena_bytes:
            raise never_fits(self.name, o, size, more)
        if size + more + len(self.name) + 16 > frame:
            raise MessageTooLarge(
                f"a body of {size} bytes with {more} bytes of properties does not fit into a frame "
                f"of the server of queue {self.name!r}, which takes {frame} bytes (max_frame)"
            )

    def wait_for_room(self, block: bool | None, timeout: float | None) -> None:
        """Return once the queue has room. Raises Full."""
        waits = self.waits(block, timeout)
        until = None if timeout is None else time.monotonic() + timeout
        backoff = RoomBackoff()
        while self.is_full():
            left = None if until is None else until - time.monotonic()
            if self.options.overflow == "drop-oldest":
                return
            if not waits or (left is not None and left <= 0):
                raise self.full(self._why_unwritten())
            with waiting_put(self.key):
                time.sleep(backoff.pause(left))

    # ---- many messages ----

    def item(self, body: Any, properties: Mapping[str, Any]) -> Item:
        """One body with the properties, as an item of a batch. Raises what ``put`` raises."""
        meta, buffer = encode(body, self.options.priorities, properties)
        self.check_size(buffer, meta)
        return (with_id(meta) if self.identified else meta), buffer

    def frame(self) -> int:
        """The longest request to send if there are several, in bytes."""
        wire = self.connection.wire
        return _BATCH_BYTES if wire is None else min(_BATCH_BYTES, wire.max_frame)

    def put_items(
        self, items: list[Item], waits: bool, timeout: float | None, durable: bool
    ) -> int:
        """Put the items in order; returns how many the queue took."""
        until = None if timeout is None else time.monotonic() + timeout
        backoff = RoomBackoff()
        done = 0
        while done < len(items):
            answer = self._put_batch(items, done, durable, until)
            accepted = answer.accepted
            done += accepted
            if answer.status == Status.OK:
                continue
            if accepted:
                backoff = RoomBackoff()
            if answer.status != Status.QUEUE_FULL:
                if done and answer.status != Status.NO_QUEUE:
                    return done
                raise self.error(answer)
            left = None if until is None else until - time.monotonic()
            if not waits or (left is not None and left <= 0):
                break
            with waiting_put(self.key):
                time.sleep(backoff.pause(left))
        return done

    def _put_batch(
        self, items: list[Item], start: int, durable: bool, until: float | None
    ) -> _core.Answer:
        def write(wire: _core.Wire) -> _core.Answer:
            most = min(_BATCH_BYTES, wire.max_frame)
            return wire.produce_batch(items, start, most, durable)[0]

        def wait(wire: _core.Wire, answer: _core.Answer) -> None:
            confirmed(self, wire, answer, until)

        try:
            return self.connection.call(
                write, again=self.identified, within=self._window, await_=wait if durable else None
            )
        except errors.ConnectionLost as error:
            raise errors.ConnectionLost(f"{error}; {start} of {len(items)} were put") from error
        except errors.NotConfirmed as error:
            raise errors.NotConfirmed(
                f"{error}; {start} of {len(items)} are", None, start
            ) from None
