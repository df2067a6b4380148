"""The audit events of requests: changes, refused rights and failed logins."""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Callable
from typing import Any, Final

from shmq.host.supervision.audit import Actor, Event, EventLimit, Value, record
from shmq.native._core import Session
from shmq.protocol.messages.group import MemberRequest
from shmq.protocol.messages.payload import unpack_map
from shmq.protocol.opcodes import AUDIT, Right, Status, Type
from shmq.protocol.status import Refusal
from shmq.server.connection.peer import Peer

log = logging.getLogger("shmq.server")

_COUNT: Final = struct.Struct("!Q")
_OPENED: Final = struct.Struct("!II")

Details = dict[str, Value]


class Audit:
    """Records what the clients of this process change, and what they are refused. For any thread.

    ``known``: whether the session has any right to what has that name.
    """

    def __init__(self, known: Callable[[Session, str], bool]) -> None:
        self._list_known = known
        self._limits: dict[Session, EventLimit] = {}

    def answered(
        self, session: Session, kind: int, name: str, rest: bytes, status: int, payload: Any
    ) -> None:
        """Record the answer to a request, if it is one for the audit. Raises nothing."""
        try:
            self._record(session, kind, name, rest, status, payload)
        except Exception:
            log.exception("internal error: an event of the audit is missing")

    def _record(
        self, session: Session, kind: int, name: str, rest: bytes, status: int, payload: Any
    ) -> None:
        hidden = status == Status.NO_QUEUE and not self._list_known(session, name)
        event, details = self._find_event(kind, rest)
        if status == Status.FORBIDDEN or (name and hidden):
            self._refuse(session, name, Type(kind), Status(status), event)
            return
        if event is not None:
            done = isinstance(payload, bytes) and status == Status.OK
            details |= _describe_counts(kind, payload) if done else {}
            outcome = _describe_outcome(Status(status), details)
            record(event, name, outcome, actor_of(session), **_describe_client(session), **details)

    def refused(self, session: Session, kind: int, name: str, right: int) -> None:
        """Record that the engine has refused a request, for lack of that right."""
        status = Status.FORBIDDEN if self._list_known(session, name) else Status.NO_QUEUE
        lacks = {"right": Right(right).name.lower()} if right else {}
        self._refuse(session, name, Type(kind), status, None, **lacks)

    def left(self, session: Session) -> None:
        """Record how many refusals of an ended session were left out."""
        limit = self._limits.pop(session, None)
        if limit is not None and limit.left_out:
            details = {"left_out": limit.left_out, **_describe_client(session)}
            record(Event.RIGHT_REFUSED, "", "forbidden", actor_of(session), **details)

    def _refuse(
        self,
        session: Session,
        name: str,
        kind: Type,
        status: Status,
        event: Event | None,
        **details: Value,
    ) -> None:
        more = self._limits.setdefault(session, EventLimit()).take()
        if more is not None:
            operation = kind.name.lower() if event is None else event.value
            recorded = {"operation": operation, **details, **_describe_client(session), **more}
            record(Event.RIGHT_REFUSED, name, status.name.lower(), actor_of(session), **recorded)

    def _find_event(self, kind: int, rest: bytes) -> tuple[Event | None, Details]:
        events = AUDIT.get(Type(kind))
        if events is None or (kind == Type.CREATE and _is_own(rest)):
            return None, {}
        action, details = "", Details()
        with contextlib.suppress(Refusal):
            action, details = _find_action(kind, rest) if "" not in events else ("", {})
        found = events.get(action)
        return (None if found is None else Event(found)), details


def login_failed(session: Session, reason: str, **details: Value) -> None:
    """Record a failed login."""
    record(
        Event.LOGIN_FAILED, "", "unauthorized", actor_of(session),
        reason=reason, **_describe_client(session), **details,
    )  # fmt: skip


def actor_of(session: Session) -> Actor:
    """The client of the session."""
    peer: Peer = session.context
    who = None if peer.token is None else peer.token.name
    return Actor(who=who, peer=peer.peer, via="tcp")


def _describe_client(session: Session) -> Details:
    """The name that the client gave itself."""
    peer: Peer = session.context
    return {"client": peer.client} if peer.client else {}


def _is_own(rest: bytes) -> bool:
    """Whether a CREATE makes a queue that ends with its connection: such are not audited."""
    try:
        return bool(rest and unpack_map(rest).get("own"))
    except Refusal:
        return False


def _find_action(kind: int, rest: bytes) -> tuple[str, Details]:
    """The action of a request whose event depends on it, and what it is about. Raises Refusal."""
    if kind == Type.COMMIT:
        member = MemberRequest.unpack(rest)
        return ("" if member.member else "reset"), {"group": member.group}
    asked = unpack_map(rest)
    recorded = {key: asked[key] for key in ("target", "key", "kind", "alternate", "group")
            if isinstance(asked.get(key), str)}  # fmt: skip
    return str(asked.get("action")), recorded


def _describe_counts(kind: int, payload: bytes) -> Details:
    """What the answer says beside OK."""
    if kind in {Type.PURGE, Type.REDRIVE}:
        return {"messages": _COUNT.unpack(payload)[0]}
    if kind == Type.REPARTITION:
        first, behind = _OPENED.unpack(payload)
        return {"first": first, "partitions": behind}
    if kind not in {Type.EXCHANGE, Type.SCHEMA}:
        return {}
    said = unpack_map(payload)
    return {key: said[key] for key in ("changed", "missing", "version", "refused")
            if isinstance(said.get(key), str | int)}  # fmt: skip


def _describe_outcome(status: Status, details: Details) -> str:
    if details.get("refused") is not None:
        return "schema_error"
    return status.name.lower()
