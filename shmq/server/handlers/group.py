"""The members of remote clients in consumer groups; each lives as long as its connection."""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from shmq.api import GroupSummary
from shmq.client.handles.member import LOOK_EVERY
from shmq.client.local.group import DeadLetterQueues, LocalLender, move_to_dead_letters
from shmq.client.local.group_store import LocalGroupStore
from shmq.client.local.stream import LocalStream
from shmq.client.ports.share import Lent
from shmq.errors import LockTimeout, MemberFenced, NoSuchGroup
from shmq.host.namespace import group_files
from shmq.native import _group as _group_state
from shmq.native._core import Session
from shmq.protocol.messages.group import (
    GROUPS,
    GroupChange,
    GroupsRequest,
    GroupView,
    Join,
    Joined,
    MemberRequest,
    Seats,
    Settlement,
    ShareSettle,
    ShareTaken,
    unpack_places,
)
from shmq.protocol.messages.numbers import Heartbeat, ShareTake
from shmq.protocol.messages.payload import pack_map, pack_numbers
from shmq.protocol.opcodes import RIGHTS, Right, Status, Type
from shmq.protocol.status import Refusal
from shmq.server.config.tokens import KNOWN
from shmq.server.handlers.refusals import QuotaRequest, Quotas, well_formed
from shmq.server.handlers.side_threads import SideThreads

_NUMBER: Final = struct.Struct("!I")

#: What may be done twice: a repetition begins with the first receipt again.
_REPEATABLE: Final = (Settlement.EXTEND, Settlement.HAND)

#: The most records that one SHARE_TAKE leases.
_AT_ONCE: Final = 1024

#: Either right is enough to look at a group.
_LOOKS: Final = Right.CONSUME | Right.ADMIN
#: The payload of the answer to a STREAM_GROUPS that deletes: an empty map.
_NOTHING: Final = pack_map({})
#: The right that a STREAM_GROUPS needs, by its action.
_RIGHTS: Final = {"look": _LOOKS, "delete": Right.ADMIN}

Key = tuple[int, str, int]


class Streams(Protocol):
    """How :class:`Members` finds streams."""

    def attached(
        self, session: Session, name: str, right: int, identity: int = 0, group: str | None = None
    ) -> LocalStream:
        """The stream, if the session has one of those rights to it, or to that group of it."""

    def rights(self, session: Session, name: str, group: str | None = None) -> int:
        """The session's rights to the stream of that name, or to a group of it."""


class Members:
    """Carries out requests about groups, and removes the members of ended connections."""

    def __init__(
        self,
        streams: Streams,
        open_queue: Callable[[str], Any],
        quotas: Quotas,
        side_threads: SideThreads,
    ) -> None:
        self._streams = streams
        self._quotas = quotas
        self._side_threads = side_threads
        self._dead_letter_queues = DeadLetterQueues(open_queue)
        self._open: dict[Session, dict[Key, MemberSession]] = {}
        self.answers: dict[int, Callable[[Session, str, bytes], bytes]] = {
            Type.JOIN: self._join,
            Type.HEARTBEAT: self._answer_heartbeat,
            Type.SEATS: self._list_member_sessions,
            Type.COMMIT: self._commit,
            Type.LEAVE: self._leave,
            Type.SHARE_TAKE: self._take,
            Type.SHARE_SETTLE: self._settle,
            Type.STREAM_GROUPS: self._list_groups,
        }

    def left(self, session: Session) -> None:
        """Let the members of a connection that is gone leave."""
        for member_session in self._open.pop(session, {}).values():
            try:
                member_session.leave()
            except LockTimeout:
                what = f"group {member_session.store.name}: leaving it"
                self._side_threads.owe(what, member_session.leave)

    def has(self, stream: LocalStream) -> bool:
        """Whether the stream has a group with a remote member."""
        return any(
            member_session.store.stream is stream
            for member_sessions in self._open.values()
            for member_session in member_sessions.values()
        )

    def close(self) -> None:
        """Let all members leave."""
        for session in list(self._open):
            self.left(session)

    # ---- one request each ----

    def _join(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = MemberRequest.unpack(rest)
        wanted = Join.unpack(asked.rest)
        stream = self._attach(session, name, asked, RIGHTS[Type.JOIN])
        with well_formed(), self._reserve_room(session, stream, asked.group):
            member_session = self._make_member_session(session, stream, asked.group, wanted)
        key = stream.identity, asked.group, member_session.id
        self._open.setdefault(session, {})[key] = member_session
        return Joined(member_session.id, member_session.store.state.options).pack()

    def _make_member_session(
        self, session: Session, stream: LocalStream, group: str, wanted: Join
    ) -> MemberSession:
        if not wanted.shared:
            return MemberSession(stream.open_group(group, wanted.options, True), wanted.member)
        dead_letter = wanted.options.get("dead_letter")
        if isinstance(dead_letter, str):
            self._require(session, dead_letter, Right.PRODUCE)
        on_damage = {} if wanted.on_damage is None else {"on_damage": wanted.on_damage}
        lender = stream.lender(group, member=wanted.member, **on_damage, **wanted.options)
        return MemberSession(lender.store, wanted.member, lender)

    def _answer_heartbeat(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = MemberRequest.unpack(rest)
        known = Heartbeat.unpack(asked.rest).change
        member_session = self._find_member(session, name, asked)
        change = member_session.attend()
        if change is None:
            raise self._forget_fenced(session, name, asked)
        if change == known:
            return GroupChange(change).pack()
        seats = member_session.store.state.seats()
        return GroupChange(change, [(owner, meant, at) for owner, meant, at, *_ in seats]).pack()

    def _list_member_sessions(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = MemberRequest.unpack(rest)
        seats = Seats.unpack(asked.rest)
        member_session = self._find_member(session, name, asked)
        group_state = member_session.store.state
        places = unpack_places(seats.places, group_state.partitions)
        do = group_state.claim if seats.takes else group_state.release
        return b"".join(_NUMBER.pack(p) for p, _ in places if do(p, asked.member))

    def _commit(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = MemberRequest.unpack(rest)
        if asked.member:
            store = self._find_member(session, name, asked).store
        else:
            stream = self._attach(session, name, asked, Right.ADMIN)
            store = stream.open_group(asked.group, {}, False)
            store.look_for_dead()
        places = unpack_places(asked.rest, store.state.partitions)
        fenced = []
        with well_formed():
            for each in places:
                store.check_offset(*each)
        for partition, offset in places:
            if store.state.commit(partition, asked.member, offset):
                store.keep_from(partition, offset)
            else:
                fenced.append(partition)
        if fenced:
            raise Refusal(Status.FENCED, "", b"".join(map(_NUMBER.pack, fenced)))
        return b""

    def _leave(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = MemberRequest.unpack(rest)
        member_session = self._find_member(session, name, asked)
        member_session.leave()
        self._forget(session, asked, member_session)
        return b""

    def _take(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = MemberRequest.unpack(rest)
        wanted = ShareTake.unpack(asked.rest)
        member_session = self._find_member(session, name, asked)
        if member_session.lender is None:
            raise Refusal(Status.BAD_REQUEST, f"group {asked.group!r} is not a share group")
        if member_session.attend() is None:
            raise self._forget_fenced(session, name, asked)
        move_to_dead_letters(
            member_session.store.state,
            member_session.id,
            member_session.store,
            self._dead_letter_queues,
        )
        lent = member_session.lend(min(wanted.most, _AT_ONCE), handed=wanted.handed)
        lender = member_session.lender
        answer = ShareTaken(
            member_session.due(),
            [each[4] for each in member_session.store.state.seats()],
            lent,
            lender.damaged if lender.on_damage == "skip" else None,
        ).pack()
        del member_session.unanswered[: len(lent)]
        return answer

    def _settle(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = MemberRequest.unpack(rest)
        wanted = ShareSettle.unpack(asked.rest)
        member_session = self._find_member(session, name, asked)
        group_state = member_session.store.state
        settle: Callable[[int], bool] = {
            Settlement.ACK: group_state.ack,
            Settlement.NACK: lambda receipt: group_state.nack(receipt, wanted.ns),
            Settlement.REJECT: group_state.reject,
            Settlement.EXTEND: lambda receipt: group_state.extend(receipt, wanted.ns),
            Settlement.HAND: group_state.hand,
            Settlement.LOST: group_state.lost,
            Settlement.RETURN: lambda receipt: group_state.nack(receipt, wanted.ns, False),
        }[Settlement(wanted.action)]
        is_repeatable = Settlement(wanted.action) in _REPEATABLE
        settled = [] if is_repeatable else member_session.begin_settling(asked.rest)
        for receipt in wanted.receipts[len(settled) :]:
            settled.append(settle(receipt))
        member_session.end_settling()
        refused = [
            receipt
            for receipt, was_leased in zip(wanted.receipts, settled, strict=True)
            if not was_leased
        ]
        if refused:
            raise Refusal(Status.LEASE_EXPIRED, "", pack_numbers(refused))
        return b""

    def _list_groups(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = GroupsRequest.unpack(rest)
        with well_formed():
            if asked.group is None:
                return GROUPS.pack(self._list(session, name, asked.identity))
            right, group = _RIGHTS[asked.action], asked.group
            stream = self._streams.attached(session, name, right, asked.identity, group)
            if asked.action == "delete":
                stream.delete_group(group)
                return _NOTHING
            if asked.group_id is not None:
                return _make_view(_find_group(stream, group, asked.group_id)).pack()
            with self._reserve_room(session, stream, group, asked.create):
                return _make_view(stream.open_group(group, asked.options, asked.create)).pack()

    def _list(self, session: Session, name: str, identity: int) -> list[GroupSummary]:
        """The groups that the session may look at."""
        stream = self._streams.attached(session, name, _LOOKS | KNOWN, identity)
        rights = functools.partial(self._streams.rights, session, name)
        return [each for each in stream.groups() if rights(each.name) & _LOOKS]

    # ---- finding ----

    def _find_member(self, session: Session, name: str, asked: MemberRequest) -> MemberSession:
        """The member's session. Raises Refusal, NoSuchStream, MemberFenced."""
        stream = self._attach(session, name, asked, Right.CONSUME)
        key = stream.identity, asked.group, asked.member
        member_session = self._open.get(session, {}).get(key)
        if member_session is None:
            raise _make_fenced_error(asked)
        return member_session

    def _attach(self, session: Session, name: str, asked: MemberRequest, right: int) -> LocalStream:
        return self._streams.attached(session, name, right, asked.identity, asked.group)

    def _reserve_room(
        self, session: Session, stream: LocalStream, group: str, create: bool = True
    ) -> contextlib.AbstractContextManager[None]:
        """Check the quotas for a group that the block creates. Raises Refusal, LockTimeout."""

        def wished() -> QuotaRequest | None:
            if not create:
                return None
            there = group_files.look_at(stream.namespace, stream.identity, group)
            return QuotaRequest("groups", [f"{stream.name}/{group}"]) if there is None else None

        return self._quotas.room_for(session, wished)

    def _require(self, session: Session, name: str, right: int) -> None:
        if not self._streams.rights(session, name) & right:
            raise Refusal(
                Status.FORBIDDEN, f"dead_letter={name!r}: the token has no right to produce to it"
            )

    def _forget_fenced(self, session: Session, name: str, asked: MemberRequest) -> MemberFenced:
        """Forget a member that was fenced, and return its error."""
        self._forget(session, asked, self._find_member(session, name, asked))
        return _make_fenced_error(asked)

    def _forget(
        self, session: Session, asked: MemberRequest, member_session: MemberSession
    ) -> None:
        key = member_session.store.stream.identity, asked.group, asked.member
        self._open.get(session, {}).pop(key, None)


class MemberSession:
    """A member: its place in the group, and the lender of its records if the group shares."""

    def __init__(
        self, store: LocalGroupStore, member: str | None, lender: LocalLender | None = None
    ) -> None:
        self.store = store
        self.lender = lender
        #: What it has leased, but was not sent: a later step met a held lock.
        self.unanswered: list[Lent] = []
        #: The settlement that met a held lock, and the outcome of each receipt before that.
        self._settling: tuple[bytes, list[bool]] = (b"", [])
        if lender is None:
            self.at, self.id = store.state.join(store.process, (member or "?").encode())
        else:
            self.at, self.id = lender.at, lender.id

    def attend(self) -> int | None:
        """Heartbeat, and maintain the group. Returns its `change`; None: no member any more."""
        group_state = self.store.state
        if group_state.beat(self.at, self.id) is None:
            return None
        if group_state.watch(LOOK_EVERY):
            self.store.look_for_dead()
        self.store.widen()
        if self.lender is None:
            self.store.plan()
        else:
            self.lender.take_up()
        return group_state.change

    def lend(self, limit: int, *, handed: bool) -> list[Lent]:
        """Lease records to the member. They stay in `unanswered` until the caller removes them."""
        assert self.lender is not None
        if not self.unanswered:
            self.unanswered = self.lender.lent(limit)
        if handed:
            hand = self.store.state.hand
            self.unanswered = [each for each in self.unanswered if hand(each[0])]
        return self.unanswered[:limit]

    def begin_settling(self, request: bytes) -> list[bool]:
        """The outcomes so far of the request, if it is a repetition of the last one."""
        if self._settling[0] != request:
            self._settling = request, []
        return self._settling[1]

    def end_settling(self) -> None:
        """Forget the request, which is answered."""
        self._settling = b"", []

    def due(self) -> int:
        """How many ns until a leased or delayed record is due."""
        return max(0, min(self.store.state.due() - _group_state.clock(), 10**18))

    def leave(self) -> None:
        """End the membership, and return its unsettled records to the group."""
        if self.lender is not None:
            self.lender.leave()
        else:
            self.store.drop(self.id)


def _make_fenced_error(asked: MemberRequest) -> MemberFenced:
    return MemberFenced(f"member {asked.member} was removed from group {asked.group!r}: join again")


def _find_group(stream: LocalStream, group: str, known: object) -> LocalGroupStore:
    """The group with the id ``known``. Raises NoSuchGroup, also if another one has its name."""
    group_state = group_files.look_at(stream.namespace, stream.identity, group)
    if group_state is None or group_state.options["group_id"] != known:
        raise NoSuchGroup.of(group, stream.name)
    return LocalGroupStore(stream.namespace, stream, group, group_state)


def _make_view(store: LocalGroupStore) -> GroupView:
    group_state = store.state
    store.look_for_dead()
    store.widen()
    members, seats = group_state.members(), group_state.seats()
    return GroupView(group_state.options, members, seats, group_state.numbers())
