"""Leases by HTTP: messages are taken with a long poll, and settled by their receipts."""

from __future__ import annotations

import time
from typing import Any, Final, Literal

import msgspec

import shmq
from shmq.extras.console.api.messages import MessageView, view_of
from shmq.extras.console.api.operation import LONGEST, SLICE, Answer, Call, Parameter, operation
from shmq.extras.console.leases import MOST_HELD, LeaseSession
from shmq.extras.console.problem import Problem, problem_of
from shmq.protocol.opcodes import Right

_MOST: Final = 1000
_NAME: Final = Parameter("name", "string", "the queue's name", most=255)


class Lease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to lease."""

    max: int = 1
    #: How long to wait for the first message, in seconds, at most 20.
    wait: float = 0.0
    where: str | None = None
    #: The session that the messages belong to; null: a new one.
    session: str | None = None


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """The leased messages."""

    items: list[MessageView]
    #: The session: give it again, so that the next leases belong to it, too.
    session: str


class Reported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why messages could not be handled: `Failure` without its time."""

    text: str
    type: str = ""
    trace: str = ""


class Settle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to settle, or to keep, leased messages."""

    receipts: list[str]
    how: Literal["ack", "nack", "reject", "extend"] = "ack"
    #: With nack: after how many seconds it is visible again; null: the queue's back-off.
    delay: float | None = None
    #: With nack: whether the delivery counts; false: null for `delay` is at once.
    counted: bool = True
    #: With nack and reject: why. The messages keep it.
    error: str | Reported | None = None
    #: With extend: the seconds from now until the lease ends.
    seconds: float | None = None


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt that was not settled."""

    receipt: str
    code: str
    detail: str


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """How many were settled, and which were not."""

    settled: int
    refused: list[Refused]


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which session to end."""

    session: str


class SessionEnded(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages have returned."""

    returned: int


@operation("POST", "/queues/{name}/lease", _NAME, body=Lease, answer=Leased, tag="leases",
           waits=True)  # fmt: skip
def lease_messages(call: Call) -> Leased:
    """Take messages; each must be settled before its lease ends, or it is delivered again."""
    name, asked = call["name"], call.body
    call.need(Right.CONSUME, "queue", name)
    if not 1 <= asked.max <= _MOST:
        raise Problem.invalid(f"max={asked.max}: lease 1 to {_MOST} messages")
    if not 0 <= asked.wait <= LONGEST:
        raise Problem.invalid(f"wait={asked.wait}: wait 0 to {LONGEST} seconds")
    with call.console.leases.session(call.caller.name, asked.session) as session:
        items = lease(call, session, name, asked.max, asked.wait, asked.where)
        return Leased(items=items, session=session.id)


def lease(
    call: Call, session: LeaseSession, name: str, most: int, wait: float, where: str | None
) -> list[MessageView]:
    """Lease up to ``most`` messages into the session; waits for the first ``wait`` seconds."""
    book = call.console.leases
    if sum(map(len, session.held.values())) + most > MOST_HELD:
        raise Problem(
            429, "too-many", f"the session would hold more than {MOST_HELD} messages: settle some"
        )
    until = time.monotonic() + wait
    try:
        queue = book.queue(session, name)
        found = _take(call, session, queue, most, until, where)
    except (shmq.QueueDeleted, shmq.NoSuchQueue):
        book.drop_queue(session, name)
        raise
    held = session.held.setdefault(name, set())
    items = []
    for message in found:
        receipt = message.receipt
        held.add(receipt)
        items.append(view_of(message, f"{session.id}.{name}.{receipt}"))
    session.check()  # what was ended in the meantime returns: it is not reported as leased
    return items


def _take(
    call: Call, session: LeaseSession, queue: shmq.Queue, most: int, until: float, where: str | None
) -> list[shmq.Message]:
    """The messages; the wait is cut in slices, so that what ends is not held up.

    An error after the first message ends it: what was leased is the session's.
    """
    while True:
        left = until - time.monotonic()
        try:
            first = queue.get(left > 0, min(left, SLICE) if left > 0 else None, where=where)
        except shmq.Empty:
            if left <= SLICE or session.ended or call.console.ending.is_set():
                return []
            continue
        found = [first]
        while len(found) < most:
            try:
                found.append(queue.get(False, where=where))
            except shmq.ShmqError:
                break
        return found


@operation("POST", "/settle", body=Settle, answer=Settled, tag="leases")
def settle_messages(call: Call) -> Settled:
    """Acknowledge messages, return them, reject them, or extend their leases."""
    asked = call.body
    if not 1 <= len(asked.receipts) <= _MOST:
        raise Problem.invalid(f"receipts: settle 1 to {_MOST} at a time")
    if (asked.how == "extend") is (asked.seconds is None):
        raise Problem.invalid("seconds belongs to extend, and extend needs it")
    if asked.how != "nack" and (asked.delay is not None or not asked.counted):
        raise Problem.invalid("delay and counted belong to nack")
    if asked.error is not None and asked.how not in {"nack", "reject"}:
        raise Problem.invalid("error belongs to nack and reject")
    settled, refused = 0, []
    for receipt in asked.receipts:
        try:
            settle_one(
                call, receipt, asked.how, asked.delay, asked.seconds, asked.counted, asked.error
            )
            settled += 1
        except (shmq.ShmqError, Problem) as error:
            problem = problem_of(error)
            assert problem is not None
            refused.append(Refused(receipt=receipt, code=problem.code, detail=str(problem)))
    return Settled(settled=settled, refused=refused)


def settle_one(
    call: Call,
    shown: str,
    how: str,
    delay: float | None = None,
    seconds: float | None = None,
    counted: bool = True,
    error: str | Reported | None = None,
) -> None:
    """Settle one message. Raises LeaseExpired and Problem."""
    session_id, _, rest = shown.partition(".")
    name, _, number = rest.rpartition(".")
    if not name or not number.isascii() or not number.isdigit() or len(number) > 20:
        raise Problem.invalid(f"{shown[:80]!r} is not a receipt: give one of a lease")
    call.need(Right.CONSUME, "queue", name)
    with call.console.leases.session(call.caller.name, session_id) as session:
        receipt = int(number)
        session.check_held(name, receipt)
        queue = call.console.leases.queue(session, name)
        why = (
            shmq.Failure(**msgspec.structs.asdict(error)) if isinstance(error, Reported) else error
        )
        acts: dict[str, Any] = {
            "ack": lambda: queue.ack(receipt),
            "nack": lambda: queue.nack(receipt, delay, counted=counted, error=why),
            "reject": lambda: queue.reject(receipt, why),
            "extend": lambda: queue.extend(receipt, seconds or 0.0),
        }
        try:
            acts[how]()
        except shmq.LeaseExpired:
            session.held.get(name, set()).discard(receipt)
            raise
        if how != "extend":
            session.note_settled(name, receipt, how)


@operation("POST", "/sessions/end", body=SessionEnd, answer=SessionEnded, tag="leases")
def end_session(call: Call) -> Answer:
    """End a session: what it holds leased returns to the queues at once."""
    returned = call.console.leases.end(call.body.session, call.caller.name)
    return Answer(value=SessionEnded(returned=returned))
