"""Puts to a queue of a server: encoded, sent, repeated after a lost connection."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from typing import Any, Final

from shmq import api, errors
from shmq.api.options import QueueOptions
from shmq.client.handles.put import is_full, never_fits, waiting_put, with_entry
from shmq.client.ports.queue import Item, QueuePort
from shmq.client.ports.steps import Steps, pause
from shmq.client.remote.connection import Attempt, Connection
from shmq.client.remote.durable_wait import confirmed
from shmq.client.shared.backoff import RoomBackoff
from shmq.errors import MessageTooLarge
from shmq.model.codec import codecs
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.queue import QueueState
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import error_of

#: The longest payload of one PRODUCE_BATCH, in bytes: a compromise between round trips and the
#: server's memory.
_BATCH_BYTES = 4 << 20

_OK: Final = int(Status.OK)

#: The pauses before a put is repeated that was lost, and that met a server that shuts down.
_LOST_PAUSE, _SHUT_PAUSE = 0.001, 0.05


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


def with_id(meta: bytes | None) -> bytes:
    """The packed properties with a generated dedupe id."""
    entry = codecs.pack_properties({"dedupe": _ids.next()})
    return entry if meta is None else with_entry(meta, entry[1:])


os.register_at_fork(after_in_child=_ids.renew)


def _stats(wire: _core.Wire) -> _core.Answer:
    return wire.request(Type.STATS, True, b"")


class RemotePuts(QueuePort):
    """The puts of the port: sent, repeated after a lost connection, and waited for.

    A put of a queue with a dedupe window gets a generated id unless the application gives it one,
    so that it can be repeated.
    """

    def __init__(self, connection: Connection, namespace: str, options: QueueOptions) -> None:
        self.connection = connection
        self.name = connection.name
        self.options = options
        #: Whether puts get a generated dedupe id.
        self.identified = options.dedupe_window > 0
        self.url = connection.url
        self.key = (connection.url, namespace, connection.name)
        self._window = options.dedupe_window
        self._patience = connection.target.request_timeout

    # ---- the queue's state, and refusals ----

    def state(self) -> QueueState:
        """The queue's current state. Raises the error of a refusal."""
        answer = self.connection.call(Type.STATS, _stats)
        self._check(answer)
        return QueueState.unpack(answer)

    def check_room(self) -> None:
        state = self.state()
        found = state.stats
        if found.depth + found.delayed + found.in_flight + found.dying >= self.options.capacity:
            raise self.full(state.unwritten if self.options.durability != "memory" else None)

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

    def _find_unwritten(self) -> Steps[str | None]:
        """Return the server's report on slots that wait for its disk; None: there are none."""
        if self.options.durability == "memory":
            return None
        with contextlib.suppress(errors.ShmqError):
            answer = yield from self.connection.calling(Type.STATS, _stats)
            if answer.status == Status.OK:
                return QueueState.unpack(answer).unwritten
        return None

    # ---- one message ----

    def put(
        self,
        item: Item,
        waits: bool,
        timeout: float | None,
        known: bool,
        durable: bool,
        first: Attempt | None = None,
    ) -> Steps[api.Put]:
        # ``first``: an attempt of the caller, of what `pack` has returned.
        connection = self.connection
        meta, body = item if first is not None else self.pack(item[0], item[1], known)
        began = time.monotonic() if first is None else first.began
        until = None if timeout is None else began + timeout
        if first is None:
            wire: Any = connection.wire
            if wire is None or not wire.is_usable:
                wire = yield connection.readying(began + self._patience, until)
            answer = wire.produce(meta, body, durable)
            began = time.monotonic()
            if durable:
                yield from confirmed(self, wire, answer, until)
            else:
                yield connection.answering(wire, answer, self._patience)
            if answer.status == _OK and not answer.lost:
                return _core.new_put(answer.number, False)  # the usual case
        else:
            wire, answer, began = first
            if not answer.done:
                connection.give_up(wire)
        backoff = RoomBackoff()
        while answer.lost or answer.status in (Status.QUEUE_FULL, Status.SHUTTING_DOWN):
            if answer.status == Status.QUEUE_FULL and not answer.lost:
                left = None if until is None else until - time.monotonic()
                if not waits or (left is not None and left <= 0):
                    raise self.full((yield from self._find_unwritten()))
                with waiting_put(self.key):
                    yield pause(backoff.pause(left))
                began = time.monotonic()  # a refused put was not taken
            else:
                self._check_repeatable(wire, answer, began)
                yield pause(_LOST_PAUSE if answer.lost else _SHUT_PAUSE)
            wire = yield connection.readying(time.monotonic() + self._patience, until)
            answer = wire.produce(meta, body, durable)
            yield from self.await_put(wire, answer, durable, until)
        if answer.status == Status.DUPLICATE:
            # With a generated id, the first put with that id was our own first attempt.
            return _core.new_put(answer.number, known or not self.identified)
        self._check(answer)
        return _core.new_put(answer.number, False)

    def await_put(
        self, wire: _core.Wire, answer: _core.Answer, durable: bool, until: float | None = None
    ) -> Steps[None]:
        """Wait until the answer to a put has come, or is lost. Raises NotConfirmed."""
        if durable:
            yield from confirmed(self, wire, answer, until)
        else:
            yield self.connection.answering(wire, answer, self._patience)

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

    def check_size(self, body: Any, meta: bytes | None) -> None:
        """Raise MessageTooLarge for a message that can never be put."""
        self.check_bytes(len(body) if type(body) is bytes else memoryview(body).nbytes, meta)

    def check_bytes(self, size: int, meta: bytes | None) -> None:
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

    # ---- many messages ----

    def pack(self, meta: bytes | None, body: Any, known: bool) -> Item:
        """Return the message as it is sent. Raises MessageTooLarge."""
        self.check_size(body, meta)
        return (with_id(meta) if self.identified and not known else meta), body

    def frame(self) -> int:
        """The longest request to send if there are several, in bytes."""
        wire = self.connection.wire
        return _BATCH_BYTES if wire is None else min(_BATCH_BYTES, wire.max_frame)

    def put_many(
        self, items: list[Item] | list[bytes], waits: bool, timeout: float | None, durable: bool
    ) -> int:
        # Bytes without properties need not be packed; there are no items of both kinds.
        if items and type(items[0]) is tuple:
            items = [self.pack(*item, False) for item in items]
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
        self, items: list[Item] | list[bytes], start: int, durable: bool, until: float | None
    ) -> _core.Answer:
        def write(wire: _core.Wire) -> _core.Answer:
            most = min(_BATCH_BYTES, wire.max_frame)
            return wire.produce_batch(items, start, most, durable)[0]

        def wait(wire: _core.Wire, answer: _core.Answer) -> Steps[None]:
            return confirmed(self, wire, answer, until)

        try:
            return self.connection.call(
                Type.PRODUCE_BATCH,
                write,
                again=self.identified,
                within=self._window,
                await_=wait if durable else None,
                retry_until=until,
            )
        except errors.ConnectionLost as error:
            raise errors.ConnectionLost(f"{error}; {start} of {len(items)} were put") from error
        except errors.NotConfirmed as error:
            raise errors.NotConfirmed(
                f"{error}; {start} of {len(items)} are", None, start
            ) from None
