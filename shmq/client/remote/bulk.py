"""Columns and runs of a server's queue: very many messages at a time."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from shmq import api, errors
from shmq.api.bulk import check_epoch, check_holder
from shmq.api.options import check_whole
from shmq.client.remote.connection import Write
from shmq.native import _core
from shmq.protocol.messages.named_lease import NamedLease, NamedLeaseState
from shmq.protocol.opcodes import FOREVER, Status, Type

_RANGE = struct.Struct("!III")
_HEAD = struct.Struct("!II")
#: The most receipts of one settlement, and the most messages that one READ_RUN names.
_MOST_AT_ONCE = 1 << 16
_MOST_BYTES = (1 << 31) - 1
#: The fewest bytes of a message in a block.
_LEAST_ROW = 67


class RemoteBulkQueue(api.BulkQueue):
    """Implements :class:`shmq.api.BulkQueue`."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._connection = queue.connection

    def _read_block(self, answer: _core.Answer) -> tuple[int, int, api.Columns]:
        """(next, slots, the columns) of an answer to COLUMNS or READ_RUN."""
        if answer.status != Status.OK:
            raise self._queue.port.error(answer)
        payload = answer.payload or b""
        try:
            return *_HEAD.unpack_from(payload), api.Columns(payload[_HEAD.size :])
        except (ValueError, struct.error) as error:
            raise errors.ServerError(
                f"the server's answer about queue {self._queue.name!r} makes no sense: {error}"
            ) from error

    def slots(self) -> int:
        return self._read_columns(0, 0, 1)[1]

    def read_columns(
        self, start: int = 0, *, max_bytes: int = 4 << 20, end: int | None = None
    ) -> tuple[api.Columns, int | None]:
        first = min(check_whole("start", start, 0, None), 1 << 24)
        last = FOREVER if end is None else min(check_whole("end", end, 0, None), 1 << 24)
        most = min(check_whole("max_bytes", max_bytes, 1, None), _MOST_BYTES)
        following, _, columns = self._read_columns(first, last, most)
        return columns, None if following == FOREVER else following

    def _read_columns(self, start: int, end: int, most: int) -> tuple[int, int, api.Columns]:
        rest = _RANGE.pack(start, end, most)
        return self._read_block(self._connection.ask(Type.COLUMNS, rest, named=True))

    def lease_run(
        self,
        max: int,
        *,
        max_bytes: int | None = None,
        seconds: float = 600.0,
        claim: api.Claim | None = None,
        epoch: int = 0,
    ) -> api.Run:
        most = min(check_whole("max", max, 1, None), FOREVER)
        budget = (1 << 63) - 1
        if max_bytes is not None:
            budget = min(check_whole("max_bytes", max_bytes, 1, None), budget)
        ms = _lease_ms(seconds)
        if claim is None:
            run = self._run(Type.LEASE_RUN, lambda wire: wire.lease_run(most, budget, ms))
        else:
            asked = NamedLease(
                action="lease",
                holder=claim.name,
                token=claim.token,
                epoch=check_epoch("epoch", epoch, 1),
                most=most,
                max_bytes=budget,
                ms=ms,
            )
            run = self._lease_named(asked)
        if not len(run):
            self._queue.found_nothing()
        return run

    def _lease_named(self, asked: NamedLease) -> api.Run:
        """Lease once: if the answer is lost with its connection, find what was leased by it."""
        try:
            return self._ask_named_lease(asked, again=False).run
        except errors.ConnectionLost:
            run = self._ask_named_lease(dataclasses.replace(asked, action="find")).run
            return run if len(run) else self._ask_named_lease(asked, again=False).run

    def take_over(
        self, name: str, *, settled: int = 0, epoch: int = 0, seconds: float = 600.0
    ) -> api.Takeover:
        asked = NamedLease(
            action="take_over",
            holder=check_holder(name),
            settled=check_epoch("settled", settled),
            epoch=check_epoch("epoch", epoch),
            ms=_lease_ms(seconds),
        )
        state = self._ask_named_lease(asked)
        return api.Takeover(api.Claim(name, state.token), state.run, state.settled, state.returned)

    def is_claimed(self, claim: api.Claim) -> bool:
        return self._ask_named_lease(
            NamedLease(action="check", holder=claim.name, token=claim.token)
        ).known

    def release(self, name: str) -> int:
        return self._ask_named_lease(
            NamedLease(action="release", holder=check_holder(name))
        ).returned

    def _ask_named_lease(self, asked: NamedLease, *, again: bool = True) -> NamedLeaseState:
        """The answer. Raises LeaseExpired if the claim is void, and Full for a name too many."""
        state = NamedLeaseState.unpack(
            self._queue.port.ask(Type.NAMED_LEASE, asked.pack(), again=again)
        )
        if state.void is not None:
            raise errors.LeaseExpired(state.void)
        if state.full is not None:
            raise errors.Full(state.full)
        return state

    def lease_again(self, sequences: Any, *, seconds: float = 600.0) -> api.Run:
        raw = _core.numbers_of("sequences", sequences, 8)
        ms = _lease_ms(seconds)

        def write(wire: _core.Wire) -> _core.Answer:
            most = (wire.max_frame - 256) // 8
            if len(raw) // 8 > most:
                raise errors.InvalidOption(
                    f"sequences has {len(raw) // 8} numbers: this server takes up to {most} at once"
                )
            return wire.lease_again(ms, raw, 0, len(raw) // 8)

        return self._run(Type.LEASE_AGAIN, write)

    def _run(self, kind: Type, write: Write) -> api.Run:
        answer: _core.Answer = self._connection.call(kind, write)
        if answer.status != Status.OK:
            raise self._queue.port.error(answer)
        return answer.run()

    def read_run(
        self, slots: Any, sequences: Any, *, start: int = 0, max_bytes: int = 4 << 20
    ) -> tuple[api.Columns, int | None]:
        where, which, count = _core.places_of(slots, sequences)
        first = check_whole("start", start, 0, count)
        most = min(check_whole("max_bytes", max_bytes, 1, None), _MOST_BYTES)
        end = min(count, first + min(_MOST_AT_ONCE, most // _LEAST_ROW + 1))
        answer = self._connection.call(
            Type.READ_RUN, lambda wire: wire.read_run(most, where, which, first, end)
        )
        if answer.status == Status.LEASE_EXPIRED:
            raise _core.gone(self._queue.name, answer.refused, end - first)
        following, _, columns = self._read_block(answer)
        reached = end if following == FOREVER else first + following
        return columns, None if reached >= count else reached

    def ack_run(self, receipts: Any) -> int:
        return self._settle_run(Type.ACK, receipts, None)

    def extend_run(self, receipts: Any, seconds: float) -> int:
        return self._settle_run(Type.EXTEND, receipts, _core.milliseconds("seconds", seconds))

    def return_run(self, receipts: Any) -> int:
        return self._settle_run(Type.RETURN, receipts, None)

    def _settle_run(self, kind: Type, receipts: Any, argument: int | None) -> int:
        raw = _core.numbers_of("receipts", receipts, 8)
        refused = 0
        for start in range(0, len(raw) // 8, _MOST_AT_ONCE):
            end = min(len(raw) // 8, start + _MOST_AT_ONCE)
            refused += self._settle_some(kind, raw, start, end, argument)
        return refused

    def _settle_some(
        self, kind: Type, raw: bytes, start: int, end: int, argument: int | None
    ) -> int:
        answer = self._connection.call(
            kind, lambda wire: wire.settle_run(kind, raw, start, end, argument)
        )
        if answer.status == Status.LEASE_EXPIRED:
            return len(answer.refused)
        if answer.status != Status.OK:
            raise self._queue.port.error(answer)
        return 0


def _lease_ms(seconds: float) -> int:
    ms = _core.milliseconds("seconds", seconds)
    if not ms:
        raise errors.InvalidOption(f"seconds={seconds} must be more than 0: a lease takes time")
    return ms
