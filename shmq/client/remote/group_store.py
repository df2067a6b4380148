"""A group of a server's stream, as the members of this process see it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final

from shmq import errors
from shmq.api.options import check_whole
from shmq.client.shared.group_store import GroupStore, PartitionSeat
from shmq.client.shared.share import Lent
from shmq.native import _core
from shmq.protocol.messages.group import (
    GroupChange,
    Heartbeat,
    MemberRequest,
    Seats,
    Settlement,
    ShareSettle,
    ShareTake,
    ShareTaken,
)
from shmq.protocol.messages.payload import pack_map, pack_places, unpack_answer
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import stream_error_of

__all__ = ["RemoteGroupState", "RemoteGroupStore", "RemoteMemberState", "RemoteSettler"]

#: How long what the server said of a member is believed, in seconds.
_FRESH: Final = 0.01


class RemoteGroupState:
    """What :class:`shmq.client.shared.group_store.GroupState` has, asked of a server.

    The server plans, looks for the dead, and keeps what is not done.
    """

    #: The server plans.
    planned = True
    deleted = False

    def __init__(self, stream: Any, name: str, options: Mapping[str, Any]) -> None:
        self._stream = stream
        self._name = name
        self._given = dict(options)
        self._seats: list[PartitionSeat] = []
        self.options: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """Everything that is known of the group now; the first look makes it if there is none.

        Raises StreamDeleted if the group that was looked at before is no more.
        """
        asked = {"identity": self._stream.identity, "action": "look", "group": self._name}
        if self.options:
            asked["group_id"] = self.options["group_id"]
        try:
            answer = self._stream.ask(Type.STREAM_GROUPS, pack_map({**asked, **self._given}))
        except errors.NoSuchGroup as error:
            raise errors.StreamDeleted(str(error)) from error
        shown = unpack_answer(answer)
        self.options = shown["options"]
        self._seats = [tuple(each) for each in shown["seats"]]
        return shown

    @property
    def partitions(self) -> int:
        """How many partitions its members know of."""
        return len(self._seats)

    def numbers(self) -> dict[str, int]:
        """Its counters."""
        numbers: dict[str, int] = self.look()["numbers"]
        return numbers

    def members(self) -> list[tuple[int, int, str, int, int]]:
        """Its members."""
        return [tuple(each) for each in self.look()["members"]]

    def seats(self) -> list[PartitionSeat]:
        """Its partitions."""
        self.look()
        return self._seats

    def commit(self, partition: int, member: int, offset: int) -> bool:
        """Everything before the offset is done; False: the partition is not the member's."""
        try:
            self._ask(Type.COMMIT, member, pack_places([(partition, offset)]))
        except errors.MemberFenced:
            return False
        return True

    def member(self) -> RemoteMemberState:
        """The same, for one that is to be a member."""
        made = RemoteMemberState(self._stream, self._name, self._given)
        made.options = self.options
        return made

    def _ask(self, kind: int, member: int, rest: bytes = b"") -> _core.Answer:
        answer = self._sent(kind, member, rest)
        if answer.status == Status.FENCED:
            raise errors.MemberFenced(
                f"member {member} of group {self._name!r} of stream {self._stream.name!r} is no "
                f"member any more, or the partition is no longer its own"
            )
        if answer.status != Status.OK:
            error = stream_error_of(answer, self._stream.name)
            if member and isinstance(error, errors.StreamDeleted):
                self._stream.offsets()  # raises the same if it is the stream that is gone
                raise errors.StreamDeleted(f"the group {self._name!r} was deleted")
            raise error
        return answer

    def _sent(self, kind: int, member: int, rest: bytes) -> _core.Answer:
        payload = self._packed(member, rest)
        answer: _core.Answer = self._stream.connection.call(
            lambda wire: wire.request(kind, True, payload), again=kind != Type.JOIN
        )
        return answer

    def _packed(self, member: int, rest: bytes = b"") -> bytes:
        return MemberRequest(self._name, self._stream.identity, member, rest).pack()


class RemoteMemberState(RemoteGroupState):
    """What a member asks. It is one of the connection: when that is lost, it joins anew."""

    def __init__(self, stream: Any, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(stream, name, options)
        self._change = 0
        self._heard_at = 0.0
        self._due = 0
        self._damaged = 0
        self._damaged_before = 0
        self._wire: Any = None

    def seats(self) -> list[PartitionSeat]:
        """Its partitions, as they were at the last beat."""
        return self._seats

    def committed(self, partition: int) -> int | None:
        """The partition's committed offset, as it was then, or was committed by this one."""
        return self._seats[partition][2]

    def watch(self, _ns: int) -> bool:
        """The server looks for the dead."""
        return False

    def join(self, _process: int, name: bytes) -> tuple[int, int]:
        """Become a member."""
        given = {**self._given, "member": name.decode("utf-8", "replace")}
        try:
            answer = self._ask(Type.JOIN, 0, pack_map(given))
        except errors.StreamDeleted:
            self._check_grave()
            raise
        said = unpack_answer(answer)
        self.options = said["options"]
        self._change, self._heard_at = 0, 0.0
        self._damaged_before, self._damaged = self.damaged, 0
        self._wire = self._stream.connection.wire
        return 0, int(said["member"])

    def _check_grave(self) -> None:
        """Raises NoSuchQueue if it is the dead-letter queue that is not there."""
        dead_letter = self._given.get("dead_letter")
        if dead_letter is not None:
            self._stream.offsets()  # raises StreamDeleted if the stream is not
            raise errors.NoSuchQueue(
                f"there is no queue {dead_letter!r} for the dead letters of group {self._name!r}: "
                f"create it first"
            )

    @property
    def has_lost_connection(self) -> bool:
        """Whether the connection that it joined by is another one by now."""
        return self._stream.connection.wire is not self._wire

    def leave(self, member: int, _evicted: bool) -> bool:
        """Be none any more."""
        try:
            self._ask(Type.LEAVE, member)
        except errors.ShmqError:
            return False  # it was none
        return True

    def drop(self, member: int) -> None:
        """Be none any more, without waiting for an answer, or for a connection: for destructors."""
        wire = self._stream.connection.wire
        if wire is None or self.has_lost_connection or not wire.is_of_this_process:
            return  # the server knows
        with contextlib.suppress(errors.ShmqError):
            wire.forget(wire.request(Type.LEAVE, True, self._packed(member)))
            wire.send()

    def forget(self) -> None:
        """The next beat asks."""
        self._heard_at = 0.0

    def beat(self, _at: int, member: int) -> int | None:
        """Say that it lives, if that was not said just now; None: it is no member any more."""
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
        """Take a partition that is meant for the member."""
        return self._seat(True, partition, member)

    def release(self, partition: int, member: int) -> bool:
        """Leave a partition."""
        return self._seat(False, partition, member)

    def _seat(self, takes: bool, partition: int, member: int) -> bool:
        self._heard_at = 0.0
        rest = Seats(takes, pack_places([(partition, 0)])).pack()
        return self._ask(Type.SEATS, member, rest).payload != b""

    def commit(self, partition: int, member: int, offset: int) -> bool:
        """As that of a :class:`RemoteGroupState`."""
        if not super().commit(partition, member, offset):
            return False
        owner, meant, _, at, lent, moves = self._seats[partition]
        self._seats[partition] = owner, meant, offset, at, lent, moves
        return True

    # ---- one that shares ----

    def take(self, member: int, limit: int, *, handed: bool) -> tuple[dict[int, int], list[Lent]]:
        """Where each partition's next new record is, and what is lent to the member."""
        answer = self._ask(Type.SHARE_TAKE, member, ShareTake(limit, handed).pack())
        taken = ShareTaken.unpack(answer, skips_damage="on_damage" in self._given)
        self._due = time.monotonic_ns() + taken.due
        self._damaged = taken.damaged or 0
        return {p: at for p, at in enumerate(taken.ends) if at is not None}, list(taken.lent)

    @property
    def damaged(self) -> int:
        """How many records the server has passed over for it, as files are damaged."""
        return self._damaged_before + self._damaged

    def due_in(self) -> float:
        """In how many seconds something that is held is due."""
        return max(0.0, (self._due - time.monotonic_ns()) / 1e9)

    def settle(self, member: int, action: int, receipts: list[int], ns: int = 0) -> list[int]:
        """Settle what was lent; the receipts that were good no more."""
        rest = ShareSettle(action, ns, receipts).pack()
        answer = self._sent(Type.SHARE_SETTLE, member, rest)
        if answer.status == Status.FENCED:  # whose leases ended with it
            return receipts
        if answer.status not in (Status.OK, Status.LEASE_EXPIRED):
            raise stream_error_of(answer, self._stream.name)
        return list(answer.refused)


class RemoteGroupStore(GroupStore):
    """See :class:`shmq.client.shared.group_store.GroupStore`.

    The server plans, looks for the dead, and keeps what is not done.
    """

    state: RemoteGroupState

    def __init__(self, stream: Any, name: str, state: RemoteGroupState) -> None:
        super().__init__(stream, name, state)

    @property
    def process(self) -> int:
        """See :class:`GroupStore`. Members are of the server's process."""
        return 0

    def for_member(self) -> tuple[RemoteGroupStore, RemoteMemberState]:
        """See :class:`GroupStore`. Raises StreamDeleted where a JOIN would make it again."""
        self.state.look()
        state = self.state.member()
        return RemoteGroupStore(self.stream, self.name, state), state

    def refresh(self) -> None:
        """See :class:`GroupStore`."""
        self._member_state.forget()

    def drop(self, member: int) -> None:
        """See :class:`GroupStore`."""
        self._member_state.drop(member)

    def why_out(self) -> str:
        """See :class:`GroupStore`."""
        if self._member_state.has_lost_connection:
            return "the connection that it was one by was lost"
        return f"it was silent for more than {self.session_timeout:g} s"

    @property
    def _member_state(self) -> RemoteMemberState:
        assert isinstance(self.state, RemoteMemberState)
        return self.state

    def widen(self) -> None:
        """See :class:`GroupStore`. The server does it."""

    def look_for_dead(self) -> None:
        """See :class:`GroupStore`. The server does it when it is looked at."""
        self.state.look()

    def plan(self) -> None:
        """See :class:`GroupStore`. The server does it."""

    def check_offset(self, partition: int, offset: int) -> None:
        """See :class:`GroupStore`. Where the end of a partition is, the server looks."""
        count = max(self.stream.partitions, self.state.partitions)
        check_whole("partition", partition, 0, count - 1)
        check_whole(f"partition {partition}: offset", offset, 0, (1 << 63) - 1)

    def keep_from(self, partition: int, offset: int) -> None:
        """See :class:`GroupStore`. The server does it."""

    def keep_again(self, partition: int, offset: int) -> None:
        """See :class:`GroupStore`. The server does it."""

    def _fresh_seats(self) -> list[PartitionSeat]:
        self.state.look()
        return self.state.seats()


class RemoteSettler:
    """See :class:`shmq.client.shared.share.Settler`: what one member was lent."""

    def __init__(self, state: RemoteMemberState, member: int) -> None:
        self._state = state
        self._member = member

    def ack(self, receipt: int) -> bool:
        """The record is done; whether it was still lent."""
        return self._settle(Settlement.ACK, receipt)

    def nack(self, receipt: int, delay: int) -> bool:
        """It comes back in ``delay`` ns, or is spent."""
        return self._settle(Settlement.NACK, receipt, delay)

    def reject(self, receipt: int) -> bool:
        """It is spent."""
        return self._settle(Settlement.REJECT, receipt)

    def extend(self, receipt: int, ns: int) -> bool:
        """It is lent for ``ns`` from now on; 0: for the group's lease."""
        return self._settle(Settlement.EXTEND, receipt, ns)

    def hand(self, receipt: int) -> bool:
        """The application is handed the record; whether it is still lent."""
        return self._settle(Settlement.HAND, receipt)

    def lost(self, receipt: int) -> bool:
        """The stream no longer has the record."""
        return self._settle(Settlement.LOST, receipt)

    def _settle(self, action: int, receipt: int, ns: int = 0) -> bool:
        return not self._state.settle(self._member, action, [receipt], ns)
