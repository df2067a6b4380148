"""Iterating over a remote queue: messages are prefetched, acknowledgements collected."""

from __future__ import annotations

import logging
from typing import Any, Final

from shmq import errors
from shmq.client.handles.consumer import Consumer
from shmq.client.ports.steps import Steps, pause, run
from shmq.client.remote.ack_flusher import new_acks
from shmq.client.shared.backoff import Backoff
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.opcodes import Status, Type

log = logging.getLogger("shmq")

#: How long to wait until the end of a subscription is confirmed, in seconds.
_ENDING = 5.0

#: A wait of fewer seconds ends before what a subscription delivers has come.
_AT_ONCE: Final = 0.001
#: The most messages per report to the server that they are delivered.
_MOST_REPORTED = 32


class RemoteConsumer(_core.RemoteConsumer, Consumer):
    """Implements :class:`shmq.api.Consumer`. For one thread or task at a time.

    If it may wait, it subscribes: the server sends up to ``prefetch`` messages ahead, and further
    ones as those are settled. If it may not wait, it requests that many at a time.
    """

    def __init__(
        self, queue: Any, prefetch: int, timeout: float | None, where: str | None = None
    ) -> None:
        self._queue = queue
        self.name = queue.name
        self._where = None if where is None else where.encode()
        self._connection = queue.connection
        self._prefetch = prefetch
        self._timeout = timeout
        self._lease = queue.options.visibility_timeout
        self._stream: _core.Answer | None = None
        once = queue.options.max_deliveries == 1
        report_every = 1 if once else max(1, min(self._prefetch // 8, _MOST_REPORTED))
        self.prepare(new_acks(max(1, self._prefetch // 2)), self._lease, report_every)

    # ---- the next message ----

    def _next(self, _wait: bool) -> Any:
        """The next message if none is buffered; None if none came in time."""
        if not self.ended and self._begin() and self.is_fresh():
            message = self.hand_out()
            if message is not None:
                return message
        return run(self.find_next())

    def find_next(self) -> Steps[Any]:
        while not self.ended:
            if not self._begin():
                if not (yield from self._more()):
                    self._queue.found_nothing()
                    return None
            elif self.is_fresh() or (yield from self._renew()):
                message = self.hand_out()
                if message is not None:
                    return message
        return None

    def _begin(self) -> bool:
        """Do what is due; whether a message is buffered."""
        if self._connection.closed:
            raise self._connection.closed_error()
        wire = self.acks.wire
        if wire is not None and not wire.is_of_this_process:
            raise errors.ShmqError("a consumer does not survive a fork: call consume() again")
        if wire is not None and wire.is_broken:
            self._forget()
        if self.acks.is_due():
            self.acks.send()
        if self.at >= len(self.ahead):
            self._collect()
        return self.at < len(self.ahead)

    def _forget(self) -> None:
        """Drop the buffered messages: the connection is lost, and with it their leases."""
        self.ahead, self.at = [], 0
        self.acks.wire = self._stream = None
        self.acks.drop()

    def _collect(self) -> None:
        if self._stream is not None and self._stream.messages:
            self.ahead, self.at = self._stream.messages, 0
            self._stream.messages = []

    def _renew(self) -> Steps[bool]:
        """Renew the leases of the buffered messages; whether that of the first succeeded.

        A message whose lease has expired is back in the queue, and is not delivered.
        """
        first = self.ahead[self.at]
        receipts = _core.receipts_of(self.waiting)
        ms = max(1, _core.milliseconds("visibility_timeout", self._lease))
        answer = yield from self._connection.calling(
            Type.EXTEND, lambda wire: wire.settle(Type.EXTEND, receipts, ms)
        )
        if answer.status not in (Status.OK, Status.LEASE_EXPIRED):
            raise self._queue.port.error(answer)
        if self.acks.wire is None or self.acks.wire.is_broken:
            return False
        self.renewed(answer.refused, self._lease)
        return first.receipt not in answer.refused

    # ---- more of them ----

    def _more(self) -> Steps[bool]:
        """Get more messages, waiting if allowed; whether there are any."""
        connection = self._connection
        until = None if self._timeout is None else time.monotonic() + self._timeout
        if self._timeout is not None and self._timeout < _AT_ONCE:
            asking = connection.calling(Type.CONSUME, self._ask, retry_until=until)
            return self._took((yield from asking))
        backoff = None
        while not self.ended:
            patience = connection.target.request_timeout
            wire = yield connection.readying(time.monotonic() + patience, until)
            stream = self._subscribe(wire)
            self.acks.put()
            left = None if until is None else max(0.0, until - time.monotonic())
            yield connection.waiting(wire, stream, left)
            if self._has_arrived(wire, stream):
                return True
            if until is not None and time.monotonic() >= until:
                return (yield from self._stop_streaming(wire))
            backoff = backoff or Backoff()
            yield pause(backoff.pause(None if until is None else until - time.monotonic()))
        return False

    def _ask(self, wire: _core.Wire) -> _core.Answer:
        self._belong_to(wire)
        self.acks.put()
        answer = wire.consume(self._prefetch, 0, self._lease, self._where)
        wire.gather(answer, self.acks)
        return answer

    def _took(self, answer: _core.Answer) -> bool:
        if answer.status == Status.QUEUE_EMPTY:
            return False
        if not answer.messages:
            raise self._queue.port.error(answer)
        self.ahead, self.at = answer.messages, 0
        return True

    def _belong_to(self, wire: _core.Wire) -> None:
        if self.acks.wire is not wire:
            self._forget()
            self.acks.wire = wire

    def _subscribe(self, wire: _core.Wire) -> _core.Answer:
        """The subscription; a new one if the application holds all of its credit."""
        self._belong_to(wire)
        stream = self._stream
        # Messages that have arrived in the meantime are used first, without a new subscription.
        if stream is not None and self.acks.in_hand >= self._prefetch and not stream.messages:
            self.acks.put()
            wire.unsubscribe(stream)
            wire.forget(stream)
            if stream.messages:  # read by another thread just now
                wire.give_back(stream.messages)
            self._stream = stream = None
        if stream is None:
            stream = self._stream = wire.subscribe(
                self._prefetch, self._lease, self.acks, self._where
            )
            self.acks.begin(stream.id)
        return stream

    def _has_arrived(self, wire: _core.Wire, stream: _core.Answer) -> bool:
        """Whether messages came. Raises the error that ended the subscription."""
        if stream.messages and not stream.lost:
            self._collect()
            return True
        if not stream.done or self.ended:
            return False
        self._stream = None
        self._connection.check_stream(wire, stream, self._queue.port.error)
        return False

    def _stop_streaming(self, wire: _core.Wire) -> Steps[bool]:
        """End the subscription at the timeout; whether a message came at the last moment."""
        stream, self._stream = self._stream, None
        if stream is None or wire.is_broken:
            return False
        if not stream.done:
            yield from self._unsubscribe(wire, stream, [])
        if stream.lost or not stream.messages:
            return False
        self.ahead, self.at = stream.messages, 0
        return True

    def _unsubscribe(self, wire: _core.Wire, stream: _core.Answer, rest: list[Any]) -> Steps[None]:
        """End the subscription. If that is interrupted, return its messages, and ``rest``."""
        try:
            yield self._connection.waiting(wire, wire.unsubscribe(stream), _ENDING)
        except BaseException:
            wire.forget(stream)  # what arrives later is returned as it is read
            wire.give_back(rest + list(stream.messages or ()))
            wire.send()
            raise
        wire.forget(stream)

    # ---- the end ----

    def send_acks(self) -> None:
        self.acks.send()

    def confirm_acks(self) -> Steps[None]:
        # Raises LeaseExpired with the receipts of acknowledgements that came too late, and
        # ConnectionLost if the outcome is unknown.
        wire = self.acks.wire
        if wire is None:
            return
        self.acks.put()
        last = self.acks.last
        if last is not None:
            yield self._connection.answering(wire, last, self._connection.target.request_timeout)
            if last.lost:
                raise self._connection.lost(wire)
        refused, self.acks.refused = self.acks.refused, []
        if refused:
            raise errors.LeaseExpired(
                f"queue {self._queue.name!r}: the leases of {len(refused)} acknowledged messages "
                f"had ended, receipts {', '.join(map(str, refused[:10]))}: they are delivered again"
            )

    def end(self) -> Steps[None]:
        self.ended = True
        wire, stream, self._stream = self.acks.wire, self._stream, None
        if wire is None or wire.is_broken or not wire.is_of_this_process:
            return
        self.acks.put()
        self.acks.ended = True
        waiting = self._connection.waiting
        rest = self.waiting
        self.ahead, self.at = [], 0
        if stream is not None:
            if not stream.done:
                stream.stop()
                yield from self._unsubscribe(wire, stream, rest)
            rest = rest + list(stream.messages or ())
        if rest and not wire.is_broken:
            yield waiting(wire, wire.settle(Type.RETURN, _core.receipts_of(rest)), _ENDING)
        elif self.acks.last is not None and not wire.is_broken:
            yield waiting(wire, self.acks.last, _ENDING)
        self._tell_refused()

    def _tell_refused(self) -> None:
        if self.acks.refused:
            log.warning(
                "queue %s: the leases of %d acknowledged messages had ended, they are delivered "
                "again",
                self._queue.name,
                len(self.acks.refused),
            )

    def __del__(self) -> None:
        wire = self.acks.wire if getattr(self, "acks", None) is not None else None
        if self.ended or wire is None or wire.is_broken or not wire.is_of_this_process:
            return
        self.acks.put()
        self.acks.ended = True
        rest = self.waiting
        if self._stream is not None:
            if not self._stream.done:
                wire.unsubscribe(self._stream)
                wire.forget(self._stream)
            rest = rest + list(self._stream.messages or ())
        wire.give_back(rest)
        wire.send()

    @property
    def leased_ahead(self) -> int:  # type: ignore[override]
        """How many messages were not delivered."""
        if self.at >= len(self.ahead):
            self._collect()
        return len(self.waiting)
