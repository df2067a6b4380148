"""The members that remote clients have in groups of streams, each for as long as its connection."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from shmq.client.group.dead_letters import DeadLetterQueues, move_to_dead_letters
from shmq.client.group.group import LocalGroup
from shmq.client.group.group_context import GroupContext
from shmq.client.group.member import LOOK_EVERY
from shmq.client.group.share import LocalShare
from shmq.client.local.stream import LocalStream
from shmq.errors import MemberFenced, NoSuchGroup
from shmq.namespace import group_files
from shmq.native import _group as _group_state
from shmq.native._core import ADMIN_RIGHT, CONSUME_RIGHT, PRODUCE_RIGHT, Session
from shmq.protocol.opcodes import Status, Type
from shmq.server.auth.tokens import KNOWN
from shmq.server.handlers.group_request import (
    GroupRequest,
    PartitionPositions,
    ShareTake,
    receipts_of,
)
from shmq.server.handlers.quotas import QuotaRequest, Quotas
from shmq.server.handlers.request_errors import Refusal, map_of, packed, well_formed

__all__ = ["Members"]

_CHANGE: Final = struct.Struct("!Q")
_SEAT: Final = struct.Struct("!QQQ")
_NUMBER: Final = struct.Struct("!I")
_LENT: Final = struct.Struct("!QIQI")
_SETTLE: Final = struct.Struct("!BQ")

#: Stands for an offset where there is none.
_NONE: Final = (1 << 64) - 1
#: What one SHARE_TAKE lends at most.
_AT_ONCE: Final = 1024

#: Either right is enough to look at a group.
_LOOKS: Final = CONSUME_RIGHT | ADMIN_RIGHT
#: What a STREAM_GROUPS takes, by its action.
_RIGHTS: Final = {"look": _LOOKS, "delete": ADMIN_RIGHT}

Key = tuple[int, str, int]


class Streams(Protocol):
    """Where members find their streams."""

    def attached(
        self,
        session: Session,
        name: str,
        right: int = 0,
        identity: int = 0,
        group: str | None = None,
    ) -> LocalStream:
        """The stream, for who has one of those rights to it, or to that group of it."""

    def rights(self, session: Session, name: str, group: str | None = None) -> int:
        """What the session may do to the stream of that name, or to a group of it."""


class Members:
    """Carries out requests about groups, and leaves them for those whose connection ended."""

    def __init__(self, streams: Streams, open_queue: Callable[[str], Any], quotas: Quotas) -> None:
        self._streams = streams
        self._quotas = quotas
        self._dead_letter_queues = DeadLetterQueues(open_queue)
        self._open: dict[Session, dict[Key, MemberSession]] = {}
        self.answers: dict[int, Callable[[Session, str, bytes], bytes]] = {
            Type.JOIN: self._join,
            Type.HEARTBEAT: self._heartbeat,
            Type.SEATS: self._member_sessions,
            Type.COMMIT: self._commit,
            Type.LEAVE: self._leave,
            Type.SHARE_TAKE: self._take,
            Type.SHARE_SETTLE: self._settle,
            Type.STREAM_GROUPS: self._groups,
        }

    def left(self, session: Session) -> None:
        """The connection is gone: its members leave."""
        for member_session in self._open.pop(session, {}).values():
            member_session.leave()

    def has(self, stream: LocalStream) -> bool:
        """Whether anybody is a member of a group of it."""
        return any(
            member_session.context.stream is stream
            for member_sessions in self._open.values()
            for member_session in member_sessions.values()
        )

    def close(self) -> None:
        """All members leave."""
        for session in list(self._open):
            self.left(session)

    # ---- one request each ----

    def _join(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = GroupRequest(rest)
        options = asked.options()
        stream = self._attached(session, name, asked, CONSUME_RIGHT)
        with well_formed(), self._room_for(session, stream, asked.group):
            member_session = self._member_session(session, stream, asked.group, options)
        key = stream.identity, asked.group, member_session.id
        self._open.setdefault(session, {})[key] = member_session
        return packed(
            {"member": member_session.id, "options": member_session.context.group_state.options}
        )

    def _member_session(
        self, session: Session, stream: LocalStream, group: str, options: dict[str, Any]
    ) -> MemberSession:
        grouping: Any = stream
        member = options.pop("member", None)
        if member is not None and not isinstance(member, str):
            raise TypeError("'member' must be of type str")
        if not options.pop("shared", False):
            return MemberSession(grouping.group(group, **options).context, member)
        dead_letter = options.get("dead_letter")
        if isinstance(dead_letter, str):
            self._need(session, dead_letter, PRODUCE_RIGHT)
        share = grouping.share(group, member=member, **options)
        return MemberSession(share.context, member, share)

    def _heartbeat(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = GroupRequest(rest)
        known = asked.number()
        member_session = self._found(session, name, asked)
        change = member_session.attend()
        if change is None:
            raise self._fenced(session, name, asked)
        if change == known:
            return _CHANGE.pack(change)
        return _CHANGE.pack(change) + b"".join(
            _SEAT.pack(owner, meant, _NONE if committed is None else committed)
            for owner, meant, committed, *_ in member_session.context.group_state.seats()
        )

    def _member_sessions(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = GroupRequest(rest)
        if not asked.rest or asked.rest[0] > 1:
            raise Refusal(Status.BAD_REQUEST, "a SEATS takes (1) or leaves (0) partitions")
        member_session = self._found(session, name, asked)
        group_state = member_session.context.group_state
        places = PartitionPositions(asked.rest[1:], group_state.partitions).places
        do = group_state.claim if asked.rest[0] else group_state.release
        return b"".join(_NUMBER.pack(p) for p, _ in places if do(p, asked.member))

    def _commit(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = GroupRequest(rest)
        if asked.member:
            context = self._found(session, name, asked).context
        else:
            context = self._group(session, name, asked).context
            context.look_for_dead()
        places = PartitionPositions(asked.rest, context.group_state.partitions).places
        fenced = []
        with well_formed():
            for each in places:
                context.check_offset(*each)
        for partition, offset in places:
            if context.group_state.commit(partition, asked.member, offset):
                context.keep_from(partition, offset)
            else:
                fenced.append(partition)
        if fenced:
            raise Refusal(Status.FENCED, "", b"".join(map(_NUMBER.pack, fenced)))
        return b""

    def _leave(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = GroupRequest(rest)
        member_session = self._found(session, name, asked)
        self._forget(session, asked, member_session)
        member_session.leave()
        return b""

    def _take(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = GroupRequest(rest)
        quota_request = ShareTake(asked.rest)
        member_session = self._found(session, name, asked)
        if member_session.share is None:
            raise Refusal(Status.BAD_REQUEST, f"group {asked.group!r} does not share")
        if member_session.attend() is None:
            raise self._fenced(session, name, asked)
        move_to_dead_letters(
            member_session.context.group_state,
            member_session.id,
            member_session.context,
            self._dead_letter_queues,
        )
        lent = member_session.lend(min(quota_request.limit, _AT_ONCE), handed=quota_request.handed)
        ends = [
            _NONE if each[4] is None else each[4]
            for each in member_session.context.group_state.seats()
        ]
        return b"".join(
            (
                _CHANGE.pack(member_session.due()),
                _NUMBER.pack(len(ends)),
                *map(_CHANGE.pack, ends),
                *(
                    (_CHANGE.pack(member_session.share.damaged),)
                    if member_session.share.skips_damage
                    else ()
                ),
                *(_LENT.pack(*each) for each in lent),
            )
        )

    def _settle(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = GroupRequest(rest)
        if len(asked.rest) < _SETTLE.size:
            raise Refusal(Status.BAD_REQUEST, "a SHARE_SETTLE has 9 bytes before its receipts")
        action, ns = _SETTLE.unpack_from(asked.rest)
        receipts = receipts_of(asked.rest[_SETTLE.size :])
        if not 1 <= action <= 6 or ns > 10**18:
            raise Refusal(Status.BAD_REQUEST, "a SHARE_SETTLE is 1 to 6, and of at most 10^18 ns")
        group_state = self._found(session, name, asked).context.group_state
        settle: Callable[[int], bool] = (
            group_state.ack,
            lambda receipt: group_state.nack(receipt, ns),
            group_state.reject,
            lambda receipt: group_state.extend(receipt, ns),
            group_state.hand,
            group_state.lost,
        )[action - 1]
        refused = [receipt for receipt in receipts if not settle(receipt)]
        if refused:
            raise Refusal(Status.LEASE_EXPIRED, "", b"".join(map(_CHANGE.pack, refused)))
        return b""

    def _groups(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = map_of(rest)
        identity, action = asked.pop("identity", 0), asked.pop("action", None)
        with well_formed():
            if not isinstance(identity, int):
                raise TypeError("'identity' must be of type int")
            if action == "list":
                return packed(self._list(session, name, identity))
            group = asked.pop("group", None)
            if not isinstance(group, str):
                raise TypeError("'group' must be of type str")
            if action not in _RIGHTS:
                raise TypeError("'action' must be 'list', 'look' or 'delete'")
            stream: Any = self._streams.attached(session, name, _RIGHTS[action], identity, group)
            if action == "delete":
                stream.delete_group(group)
                return packed({})
            if "group_id" in asked:
                _check_same(stream, group, asked.pop("group_id"))
            with self._room_for(session, stream, group):
                return packed(_shown(stream.group(group, **asked)))

    def _list(self, session: Session, name: str, identity: int) -> list[dict[str, Any]]:
        """The groups that the session may look at."""
        stream: Any = self._streams.attached(session, name, _LOOKS | KNOWN, identity)
        rights = functools.partial(self._streams.rights, session, name)
        return [dataclasses.asdict(each) for each in stream.groups() if rights(each.name) & _LOOKS]

    # ---- finding ----

    def _found(self, session: Session, name: str, asked: GroupRequest) -> MemberSession:
        """The member's seat. Raises Refusal, NoSuchStream, MemberFenced."""
        stream = self._attached(session, name, asked, CONSUME_RIGHT)
        key = stream.identity, asked.group, asked.member
        member_session = self._open.get(session, {}).get(key)
        if member_session is None:
            raise _gone(asked)
        return member_session

    def _attached(
        self, session: Session, name: str, asked: GroupRequest, right: int
    ) -> LocalStream:
        return self._streams.attached(session, name, right, asked.identity, asked.group)

    def _group(self, session: Session, name: str, asked: GroupRequest) -> LocalGroup:
        """The group, for who may set it to other offsets."""
        stream: Any = self._attached(session, name, asked, ADMIN_RIGHT)
        with self._room_for(session, stream, asked.group):
            group: LocalGroup = stream.group(asked.group)
        return group

    def _room_for(
        self, session: Session, stream: LocalStream, group: str
    ) -> contextlib.AbstractContextManager[None]:
        """Have a group that the block makes fit the quotas. Raises Refusal, LockTimeout."""

        def wished() -> QuotaRequest | None:
            there = group_files.look_at(stream.namespace, stream.identity, group)
            return QuotaRequest("groups", [f"{stream.name}/{group}"]) if there is None else None

        return self._quotas.room_for(session, wished)

    def _need(self, session: Session, name: str, right: int) -> None:
        if not self._streams.rights(session, name) & right:
            raise Refusal(Status.FORBIDDEN, f"the token has no right to that of {name!r}")

    def _fenced(self, session: Session, name: str, asked: GroupRequest) -> MemberFenced:
        """Forget a member that is none any more."""
        self._forget(session, asked, self._found(session, name, asked))
        return _gone(asked)

    def _forget(self, session: Session, asked: GroupRequest, member_session: MemberSession) -> None:
        key = member_session.context.stream.identity, asked.group, asked.member
        self._open.get(session, {}).pop(key, None)


class MemberSession:
    """A member: its place in the group, and what lends to it if the group shares."""

    def __init__(
        self, context: GroupContext, member: str | None, share: LocalShare | None = None
    ) -> None:
        self.context = context
        self.share = share
        if share is None:
            number = context.namespace.process_number()
            self.at, self.id = context.group_state.join(number, (member or "?").encode())
        else:
            self.at, self.id = share.membership

    def attend(self) -> int | None:
        """Say that it lives, and look after the group: its `change`; None: it is no member."""
        group_state = self.context.group_state
        if group_state.beat(self.at, self.id) is None:
            return None
        if group_state.watch(LOOK_EVERY):
            self.context.look_for_dead()
        self.context.widen()
        if self.share is None:
            self.context.plan()
        else:
            self.share.take_up()
        return group_state.change

    def lend(self, limit: int, *, handed: bool) -> list[tuple[int, int, int, int]]:
        """Records that are the member's from now on."""
        assert self.share is not None
        found = self.share.lent(limit)
        return [each for each in found if not handed or self.context.group_state.hand(each[0])]

    def due(self) -> int:
        """In how many ns something that is held is due."""
        return max(0, min(self.context.group_state.due() - _group_state.clock(), 10**18))

    def leave(self) -> None:
        """It is no member any more, and what it has not settled goes back."""
        if self.share is not None:
            self.share.close()
        elif not self.context.group_state.deleted:
            self.context.group_state.leave(self.id, False)


def _gone(asked: GroupRequest) -> MemberFenced:
    return MemberFenced(f"member {asked.member} of group {asked.group!r} is no member any more")


def _check_same(stream: LocalStream, group: str, known: object) -> None:
    """Raises NoSuchGroup if there is no such group any more, or another one of its name."""
    group_state = group_files.look_at(stream.namespace, stream.identity, group)
    if group_state is None or group_state.options["group_id"] != known:
        raise NoSuchGroup(f"the group {group!r} was deleted")


def _shown(group: LocalGroup) -> dict[str, Any]:
    group_state = group.context.group_state
    group.context.look_for_dead()
    group.context.widen()
    return {
        "options": group_state.options,
        "members": group_state.members(),
        "seats": group_state.seats(),
        "numbers": group_state.numbers(),
    }
