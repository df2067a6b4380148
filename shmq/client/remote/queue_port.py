"""The port of a queue of a server."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, Final, Literal

from shmq import api, errors
from shmq.api.options import QueueOptions
from shmq.client.ports.queue import Settlement
from shmq.client.ports.steps import Steps, blocking
from shmq.client.remote.ack_flusher import new_acks
from shmq.client.remote.batch_window import RemoteFlight
from shmq.client.remote.connection import Attempt, Connection
from shmq.client.remote.consumer import RemoteConsumer
from shmq.client.remote.get import RemoteGet
from shmq.client.remote.put import RemotePuts
from shmq.model.expression.parse import Where
from shmq.native import _core
from shmq.protocol.messages.numbers import Leases
from shmq.protocol.messages.queue import Fail, LeasesState, Move, Select
from shmq.protocol.opcodes import FOREVER, Status, Type

log = logging.getLogger("shmq")

_MOST_RECEIPTS: Final = 1 << 16
#: The most acknowledgements that wait for a next request; one more sends them.
_MOST_RIDING: Final = 64

_TYPE: Final[dict[Settlement, Type]] = {
    "ack": Type.ACK,
    "nack": Type.NACK,
    "return": Type.RETURN,
    "reject": Type.REJECT,
    "extend": Type.EXTEND,
}


class RemoteQueuePort(RemotePuts):
    """Implements `QueuePort` over the connection of one handle."""

    def __init__(self, connection: Connection, namespace: str, options: QueueOptions) -> None:
        super().__init__(connection, namespace, options)
        #: The acknowledgements that ride with the next request; None: each waits for its answer.
        self.acks: _core.Acks | None = None
        if not connection.target.wait_for_acks:
            self.acks = new_acks(_MOST_RIDING, functools.partial(_report_refused, self.name))

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Whether it was closed."""
        return self.connection.closed

    def have_acked(self, messages: list[Any], refused: set[int]) -> None:
        _core.have_acked(messages, refused)

    def ask(self, kind: Type, rest: bytes = b"", *, again: bool | None = None) -> _core.Answer:
        """Send a request other than a put, get or settlement. Raises the error of a refusal."""
        answer = self.connection.ask(kind, rest, named=True, again=again)
        return self._refuse_failed(kind, answer)

    def _refuse_failed(self, kind: Type, answer: _core.Answer) -> _core.Answer:
        if answer.status != Status.OK:
            raise self.error(answer, described=kind in {Type.STAGE, Type.MOVE})
        return answer

    # ---- puts ----

    def flight(self, window: int) -> RemoteFlight:
        return RemoteFlight(self, window)

    # ---- gets ----

    def take(
        self, limit: int, timeout: float | None, where: str | None, first: Attempt | None = None
    ) -> Steps[list[Any]]:
        return RemoteGet(self, limit, where).take(timeout, first)

    def prefetch(
        self, handle: Any, limit: int, timeout: float | None, where: str | None
    ) -> RemoteConsumer:
        return RemoteConsumer(handle, limit, timeout, where)

    is_leased = staticmethod(_core.is_leased)
    hand_over = staticmethod(_core.hand_over)
    bodies_of = staticmethod(_core.bodies_of)
    receipt_of = staticmethod(_core.receipt_of)
    receipts_of = staticmethod(_core.receipts_of)
    records_in = staticmethod(_core.records_in)
    packed_of = staticmethod(_core.packed_of)

    # ---- settlements ----

    def settle(
        self,
        kind: Settlement,
        receipts: list[int],
        ms: int | None,
        error: bytes | None = None,
        *,
        first: Attempt | None = None,
    ) -> list[int]:
        # ``first`` is an attempt for all of them that the caller has made.
        number = _TYPE[kind]
        argument = FOREVER if ms is None and kind == "nack" else ms
        refused: list[int] = []
        for start in range(0, len(receipts), _MOST_RECEIPTS):
            some = receipts[start : start + _MOST_RECEIPTS]
            write = functools.partial(_settlement, number, some, argument, error)
            answer = self.connection.call(number, write, first=first)
            if answer.status == Status.LEASE_EXPIRED:
                refused += answer.refused
            elif answer.status != Status.OK:
                raise self.error(answer)
        return refused

    # ---- what the queue has ----

    def peek(self, limit: int, where: Where | None) -> list[api.Message]:
        asked = b"" if where is None else where.text.encode()
        answer = self.connection.call(Type.PEEK, lambda wire: wire.peek(limit, asked))
        if answer.status == Status.QUEUE_EMPTY:
            return []
        if answer.status != Status.OK:
            raise self.error(answer)
        return list(answer.messages or ())

    def purge(self) -> int:
        return self.ask(Type.PURGE).number

    def redrive(self, limit: int | None, where: Where | None) -> int:
        most = FOREVER if limit is None else min(limit, FOREVER - 1)
        text = None if where is None else where.text
        return self.ask(Type.REDRIVE, Select(most, text).pack()).number

    def move_to(self, target: str, limit: int | None, where: Where | None) -> Steps[int]:
        most = None if limit is None else min(limit, FOREVER - 1)
        packed = Move(target, most, None if where is None else where.text).pack()
        answer: _core.Answer = yield (
            lambda: self.connection.ask(Type.MOVE, packed, named=True),
            lambda: self.connection.aask(Type.MOVE, packed, named=True),
        )
        try:
            return self._refuse_failed(Type.MOVE, answer).number
        except errors.QueueDeleted:
            yield blocking(self.state)  # raises it if it is this queue that was deleted
            raise errors.NoSuchQueue.of(target, self.connection.where) from None

    def describe(self, what: Literal["identity", "stats", "attachments"]) -> Any:
        # A server's process stands for all its clients.
        found = getattr(self.state(), what)
        if found is None:
            raise errors.Unsupported(f"the server of queue {self.name!r} does not say its {what}")
        return found

    def leases(self, limit: int, after: int) -> list[api.Lease]:
        # A server's process stands for all its clients.
        found: list[api.Lease] = []
        more = True
        while more and len(found) < limit:
            asked = Leases(found[-1].sequence if found else after, limit - len(found))
            answer = LeasesState.unpack(self.ask(Type.LEASES, asked.pack()))
            found += answer.leases
            more = answer.more and bool(answer.leases)
        return found

    # ---- the end ----

    def send_acks(self) -> None:
        """Send the acknowledgements that wait for a next request."""
        if self.acks is not None:
            with contextlib.suppress(errors.ShmqError):
                self.acks.send()

    def close(self) -> None:
        self.send_acks()
        self.connection.close()


def _settlement(
    number: int, receipts: list[int], argument: int | None, error: bytes | None, wire: _core.Wire
) -> _core.Answer:
    if error is None or not wire.extended:  # a server that has no FAIL keeps no errors
        return wire.settle(number, receipts, argument)
    return wire.request(Type.FAIL, True, Fail(number, argument or 0, error, receipts).pack())


def _report_refused(name: str, answer: _core.Answer) -> None:
    """Log that the server refused acknowledgements after `ack` had returned."""
    refused = answer.refused
    why = f"status {answer.status}" if not refused else f"receipts {refused[:10]}"
    log.warning(
        "queue %s: acknowledgements were refused after ack() had returned (%s): the messages are "
        "delivered again, or the queue was deleted",
        name,
        why,
    )
