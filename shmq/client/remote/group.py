"""The groups of a server's stream: their state, and what its members ask of the server."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from shmq import api, errors
from shmq.api.names import check_name
from shmq.client.handles.stream import StreamHandle
from shmq.client.ports.group import GroupStore, PartitionSeat
from shmq.client.ports.share import Lender, Lent
from shmq.client.remote.connection import Connection
from shmq.errors import MemberFenced
from shmq.native import _clock as time
from shmq.native import _core
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
)
from shmq.protocol.messages.numbers import Heartbeat, ShareTake
from shmq.protocol.messages.payload import pack_places
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import stream_error_of

#: How long the server's report on a member is used, in seconds.
_FRESH: Final = 0.01
#: The settlements that may be repeated over another connection. The member has ended with the old
#: one: the server refuses them, and would refuse the others also if it has carried them out.
_REPEATABLE: Final = frozenset({Settlement.EXTEND, Settlement.HAND, Settlement.LOST})
#: How often a member joins again for one lease: each time its connection was lost once more.
_JOINS: Final = 10
_CUT_OFF: Final = "the connection that it was one by was lost"


class RemoteGroups(StreamHandle):
    """The group operations of a stream of a server."""

    def open_group(self, name: str, options: Mapping[str, Any], create: bool) -> RemoteGroupStore:
        state = RemoteGroupState(self, name, options)
        state.look(create)
        return RemoteGroupStore(self, name, state)

    def open_lender(
        self, name: str, member: str, on_damage: api.OnDamage, options: Mapping[str, Any]
    ) -> RemoteLender:
        skips = on_damage == "skip"
        state = RemoteMemberState(self, name, options, shared=True, skips_damage=skips)
        return RemoteLender(self, name, state, member)

    def groups(self) -> list[api.GroupSummary]:
        return GROUPS.unpack(self._ask_groups("list"))

    def delete_group(self, name: str) -> None:
        self._ask_groups("delete", check_name(name, "group"))

    def _ask_groups(self, action: str, name: str = "") -> _core.Answer:
        stream: Any = self
        asked = GroupsRequest(self.identity, action, name)
        answer: _core.Answer = stream.ask(Type.STREAM_GROUPS, asked.pack())
        return answer


class RemoteLender(Lender):
    """Implements `Lender`: the server leases, and maintains the group.

    The member belongs to the stream handle's connection: when that is lost, it rejoins.
    """

    def __init__(self, stream: Any, name: str, state: RemoteMemberState, member: str) -> None:
        self.stream = stream
        self.name = name
        self._state = state
        self._member = member
        self._ends: dict[int, int] = {}
        self._join()
        self.lease = state.options["lease"] / 1e9

    def _join(self) -> None:
        self.generation = _core.generation()
        _, self._id = self._state.join(0, self._member.encode())
        self._settler = RemoteSettler(self._state, self._id)

    @property
    def damaged(self) -> int:  # type: ignore[override]
        """How many records the server has skipped for this member."""
        return self._state.damaged

    @property
    def settler(self) -> RemoteSettler:
        return self._settler

    def attend(self) -> None:
        """Do nothing: the server does it whenever it leases records."""

    @property
    def hands_over(self) -> bool:  # type: ignore[override]
        """Whether it is still a member: the leases end with the connection."""
        return not self._state.has_lost_connection

    def lend(self, limit: int, *, handed: bool) -> list[Lent]:
        for _ in range(_JOINS):
            with contextlib.suppress(MemberFenced):  # over another connection
                return self._lend(limit, handed)
            self._join()
        return self._lend(limit, handed)

    def _lend(self, limit: int, handed: bool) -> list[Lent]:
        self._ends, lent = self._state.take(self._id, limit, handed=handed)
        return lent

    def outlook(self) -> tuple[float, dict[int, int]]:
        return self._state.due_in(), self._ends

    def ack_many(self, receipts: list[int]) -> list[int]:
        return self._state.settle(self._id, Settlement.ACK, receipts)

    def leave(self) -> None:
        self._state.leave(self._id, False)

    def drop(self) -> None:
        self._state.drop(self._id)


class RemoteGroupState:
    """:class:`shmq.client.ports.group.GroupState`, requested from a server.

    The server assigns partitions, detects dead members, and keeps the records not done yet.
    """

    #: The server assigns the partitions.
    planned = True
    deleted = False

    def __init__(self, stream: Any, name: str, options: Mapping[str, Any]) -> None:
        self._stream = stream
        self._name = name
        self._given = dict(options)
        self._seats: list[PartitionSeat] = []
        self.options: dict[str, Any] = {}

    def look(self, create: bool = False) -> GroupView:
        """The whole current state of the group; with ``create`` it is made if there is none.

        Raises NoSuchGroup, or StreamDeleted if there was one at an earlier call.
        """
        known = self.options.get("group_id")
        asked = GroupsRequest(self._stream.identity, "look", self._name, known, self._given, create)
        try:
            answer = self._stream.ask(Type.STREAM_GROUPS, asked.pack())
        except errors.NoSuchGroup as error:
            if known is None:
                raise
            raise self._make_deleted() from error
        shown = GroupView.unpack(answer)
        self.options, self._seats = shown.options, shown.seats
        return shown

    @property
    def partitions(self) -> int:
        """The number of partitions known to its members."""
        return len(self._seats)

    def numbers(self) -> dict[str, int]:
        """The counters of the group."""
        return self.look().numbers

    def members(self) -> list[tuple[int, int, str, int, int]]:
        """The members of the group."""
        return self.look().members

    def seats(self) -> list[PartitionSeat]:
        """The partitions of the group."""
        self.look()
        return self._seats

    def commit(self, partition: int, member: int, offset: int) -> bool:
        """Mark all before ``offset`` as done; False if the member does not own the partition."""
        try:
            places = pack_places([(partition, offset)])
            # A member ends with its connection: over another one the server would refuse the
            # commit also if it has carried it out.
            self._ask(Type.COMMIT, member, places, again=not member)
        except errors.MemberFenced:
            return False
        return True

    def member(self) -> RemoteMemberState:
        """The state for a new member."""
        made = RemoteMemberState(self._stream, self._name, self._given)
        made.options = self.options
        return made

    def _ask(
        self, kind: Type, member: int, rest: bytes = b"", *, again: bool | None = None
    ) -> _core.Answer:
        answer = self._send(kind, member, rest, again)
        if answer.status == Status.FENCED:
            raise errors.MemberFenced(
                f"member {member} of group {self._name!r} of stream {self._stream.name!r} is no "
                f"member any more, or the partition is no longer its own"
            )
        if answer.status != Status.OK:
            error = stream_error_of(answer, self._stream.name)
            if member and isinstance(error, errors.StreamDeleted):
                self._stream.offsets()  # raises the same if the stream is gone
            elif not isinstance(error, errors.NoSuchGroup):
                raise error
            raise self._make_deleted() from error
        return answer

    def _make_deleted(self) -> errors.StreamDeleted:
        return errors.StreamDeleted(f"the group {self._name!r} was deleted")

    def _send(self, kind: Type, member: int, rest: bytes, again: bool | None) -> _core.Answer:
        connection: Connection = self._stream.connection
        return connection.ask(kind, self._pack(member, rest), named=True, again=again)

    def _pack(self, member: int, rest: bytes = b"") -> bytes:
        return MemberRequest(self._name, self._stream.identity, member, rest).pack()


class RemoteMemberState(RemoteGroupState):
    """The state of one member. It belongs to the connection: when that is lost, it rejoins."""

    def __init__(
        self,
        stream: Any,
        name: str,
        options: Mapping[str, Any],
        *,
        shared: bool = False,
        skips_damage: bool = False,
    ) -> None:
        super().__init__(stream, name, options)
        self._shared = shared
        self._skips_damage = skips_damage
        self._change = 0
        self._heard_at = 0.0
        self._due = 0
        self._damaged = 0
        self._damaged_before = 0
        self._wire: Any = None

    def seats(self) -> list[PartitionSeat]:
        """The partitions as of the last heartbeat."""
        return self._seats

    def committed(self, partition: int) -> int | None:
        """The partition's committed offset, as of the last heartbeat or of its own commit since."""
        return self._seats[partition][2]

    def watch(self, _ns: int) -> bool:
        """Never: the server detects dead members."""
        return False

    def join(self, _process: int, name: bytes) -> tuple[int, int]:
        """Become a member."""
        asked = Join(
            self._given,
            name.decode("utf-8", "replace"),
            self._shared,
            "skip" if self._skips_damage else None,
        )
        try:
            answer = self._ask(Type.JOIN, 0, asked.pack())
        except errors.StreamDeleted:
            self._check_grave()
            raise
        joined = Joined.unpack(answer)
        self.options = joined.options
        self._change, self._heard_at = 0, 0.0
        self._damaged_before, self._damaged = self.damaged, 0
        self._wire = self._stream.connection.wire
        return 0, joined.member

    def _check_grave(self) -> None:
        """Raise NoSuchQueue if the missing object is the dead-letter queue."""
        dead_letter = self._given.get("dead_letter")
        if dead_letter is not None:
            self._stream.offsets()  # raises StreamDeleted if the stream is gone
            raise errors.NoSuchQueue(
                f"queue {dead_letter!r} does not exist for the dead letters of group "
                f"{self._name!r}: create it first"
            )

    @property
    def has_lost_connection(self) -> bool:
        """Whether the connection by which it joined has been replaced."""
        return self._stream.connection.wire is not self._wire

    def leave(self, member: int, _evicted: bool) -> bool:
        """End the membership."""
        try:
            self._ask(Type.LEAVE, member)
        except errors.ShmqError:
            return False  # it was not a member
        return True

    def drop(self, member: int) -> None:
        """End the membership without waiting for an answer or a connection: for destructors."""
        wire = self._stream.connection.wire
        if wire is None or self.has_lost_connection or not wire.is_of_this_process:
            return  # the server has noticed
        with contextlib.suppress(errors.ShmqError):
            wire.forget(wire.request(Type.LEAVE, True, self._pack(member)))
            wire.send()

    def forget(self) -> None:
        """Make the next heartbeat ask the server."""
        self._heard_at = 0.0

    def beat(self, _at: int, member: int) -> int | None:
        """Send a heartbeat, unless one was just sent; None: it has left the group."""
        if time.monotonic() - self._heard_at < _FRESH:
            return self._change
        try:
            answer = self._ask(Type.HEARTBEAT, member, Heartbeat(self._change).pack())
        except errors.MemberFenced:
            return None
        except errors.StreamDeleted:
            self.deleted = True
            raise
        self._heard_at = time.monotonic()
        said = GroupChange.unpack(answer)
        self._change = said.change
        if said.seats is not None:
            self._seats = [(*each, 0, None, 0) for each in said.seats]
        return self._change

    def claim(self, partition: int, member: int) -> bool:
        """Take over a partition assigned to the member."""
        return self._seat(True, partition, member)

    def release(self, partition: int, member: int) -> bool:
        """Give up a partition."""
        return self._seat(False, partition, member)

    def _seat(self, takes: bool, partition: int, member: int) -> bool:
        self._heard_at = 0.0
        rest = Seats(takes, pack_places([(partition, 0)])).pack()
        try:
            answer = self._ask(Type.SEATS, member, rest)
        except errors.MemberFenced:
            return False  # the next heartbeat joins again
        return answer.payload != b""

    def commit(self, partition: int, member: int, offset: int) -> bool:
        if not super().commit(partition, member, offset):
            return False
        owner, meant, _, at, lent, moves = self._seats[partition]
        self._seats[partition] = owner, meant, offset, at, lent, moves
        return True

    # ---- one that shares ----

    def take(self, member: int, limit: int, *, handed: bool) -> tuple[dict[int, int], list[Lent]]:
        """The offset of each partition's next new record, and what is leased to the member."""
        answer = self._ask(Type.SHARE_TAKE, member, ShareTake(limit, handed).pack())
        taken = ShareTaken.unpack(answer, skips_damage=self._skips_damage)
        self._due = time.monotonic_ns() + taken.due
        self._damaged = taken.damaged or 0
        return {p: at for p, at in enumerate(taken.ends) if at is not None}, list(taken.lent)

    @property
    def damaged(self) -> int:
        """How many records in damaged files the server has skipped for this member."""
        return self._damaged_before + self._damaged

    def due_in(self) -> float:
        """The seconds until a held record is due."""
        return max(0.0, (self._due - time.monotonic_ns()) / 1e9)

    def settle(self, member: int, action: int, receipts: list[int], ns: int = 0) -> list[int]:
        """Settle leased records; returns the receipts that were refused."""
        rest = ShareSettle(action, ns, receipts).pack()
        answer = self._send(Type.SHARE_SETTLE, member, rest, action in _REPEATABLE)
        if answer.status == Status.FENCED:  # its leases ended with the membership
            return receipts
        if answer.status not in (Status.OK, Status.LEASE_EXPIRED):
            raise stream_error_of(answer, self._stream.name)
        return list(answer.refused)


class RemoteGroupStore(GroupStore):
    """Implements :class:`shmq.client.ports.group.GroupStore`.

    The server assigns partitions, detects dead members, and keeps the records not done yet.
    """

    state: RemoteGroupState

    @property
    def process(self) -> int:
        # Members belong to the server's process.
        return 0

    def for_member(self) -> tuple[RemoteGroupStore, RemoteMemberState]:
        # Raises StreamDeleted if a JOIN would recreate the group.
        self.state.look()
        state = self.state.member()
        return RemoteGroupStore(self.stream, self.name, state), state

    def refresh(self) -> None:
        self._member_state.forget()

    def drop(self, member: int) -> None:
        self._member_state.drop(member)

    def why_out(self) -> str:
        return _CUT_OFF if self._member_state.has_lost_connection else super().why_out()

    def why_fenced(self) -> str:
        return _CUT_OFF if self._member_state.has_lost_connection else super().why_fenced()

    @property
    def _member_state(self) -> RemoteMemberState:
        assert isinstance(self.state, RemoteMemberState)
        return self.state

    def look_for_dead(self) -> None:
        # The server does it whenever its state is requested.
        self.state.look()

    def _end_of(self, partition: int) -> int:
        del partition  # the server checks its end
        return (1 << 63) - 1

    def _find_seats(self) -> list[PartitionSeat]:
        self.state.look()
        return self.state.seats()


class RemoteSettler:
    """Implements `Settler`: settles what was leased to one member."""

    def __init__(self, state: RemoteMemberState, member: int) -> None:
        self._state = state
        self._member = member

    def ack(self, receipt: int) -> bool:
        """Mark the record as done; whether its lease was still valid."""
        return self._settle(Settlement.ACK, receipt)

    def nack(self, receipt: int, delay: int, counted: bool = True) -> bool:
        """Return the record after ``delay`` ns, or as a dead letter after its last delivery.

        Without ``counted`` it is returned as if it had not been delivered. Raises Unsupported.
        """
        return self._settle(Settlement.NACK if counted else Settlement.RETURN, receipt, delay)

    def reject(self, receipt: int) -> bool:
        """Make the record a dead letter."""
        return self._settle(Settlement.REJECT, receipt)

    def extend(self, receipt: int, ns: int) -> bool:
        """Extend the lease to ``ns`` from now; 0: by the group's lease."""
        return self._settle(Settlement.EXTEND, receipt, ns)

    def hand(self, receipt: int) -> bool:
        """Note that the application gets the record; whether its lease is still valid."""
        return self._settle(Settlement.HAND, receipt)

    def lost(self, receipt: int) -> bool:
        """Note that the stream no longer has the record."""
        return self._settle(Settlement.LOST, receipt)

    def _settle(self, action: int, receipt: int, ns: int = 0) -> bool:
        return not self._state.settle(self._member, action, [receipt], ns)
