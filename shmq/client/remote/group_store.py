"""A group of a server's stream, as the members of this process see it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from shmq import errors
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
from shmq.protocol.messages.payload import pack_places
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import stream_error_of

__all__ = ["Lender", "MemberGroupStore", "RemoteGroupStore", "ServerNamespace"]

#: How long what the server said of a member is believed, in seconds.
_FRESH: Final = 0.01

Seat = tuple[int, int, int | None, int, int | None, int]
Lent = tuple[int, int, int, int]


class ServerNamespace:
    """What a group asks of its namespace, where that is a server's: it looks after the dead."""

    def process_number(self) -> int:
        """Members are of the server's process."""
        return 0

    def is_alive(self, _number: int) -> bool:
        """Whether a process is, which here nobody has to know."""
        return True


class RemoteGroupStore:
    """What :class:`shmq.native._group.GroupState` has, asked of a server, for whoever is no member.

    The server plans, looks for the dead, and keeps what is not done.
    """

    #: The server has done it.
    planned = True
    deleted = False

    def __init__(self, stream: Any, name: str, options: Mapping[str, Any]) -> None:
        self._stream = stream
        self._name = name
        self._given = dict(options)
        self._seats: list[Seat] = []
        self.options: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """Everything that is known of the group now; the first look makes it if there is none.

        Raises StreamDeleted if the group that was looked at before is no more.
        """
        asked = {"identity": self._stream.identity, "action": "look", "group": self._name}
        if self.options:
            asked["group_id"] = self.options["group_id"]
        try:
            answer = self._stream.ask(Type.STREAM_GROUPS, msgpack.packb({**asked, **self._given}))
        except errors.NoSuchGroup as error:
            raise errors.StreamDeleted(str(error)) from error
        shown: dict[str, Any] = msgpack.unpackb(answer.payload or b"", strict_map_key=False)
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

    def seats(self) -> list[Seat]:
        """Its partitions."""
        self.look()
        return self._seats

    def widen(self, _partitions: int) -> None:
        """The server does it."""

    def silent(self) -> int:
        """The server looks for the silent."""
        return 0

    def commit(self, partition: int, member: int, offset: int) -> bool:
        """Everything before the offset is done; False: the partition is not the member's."""
        try:
            self._ask(Type.COMMIT, member, pack_places([(partition, offset)]))
        except errors.MemberFenced:
            return False
        return True

    def member(self) -> MemberGroupStore:
        """The same, for one that is to be a member."""
        made = MemberGroupStore(self._stream, self._name, self._given)
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


class MemberGroupStore(RemoteGroupStore):
    """What a member asks. It is one of the connection: when that is lost, it joins anew."""

    def __init__(self, stream: Any, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(stream, name, options)
        self._change = 0
        self._heard_at = 0.0
        self._due = 0
        self._damaged = 0
        self._damaged_before = 0
        self._wire: Any = None

    def seats(self) -> list[Seat]:
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
            answer = self._ask(Type.JOIN, 0, msgpack.packb(given))
        except errors.StreamDeleted:
            self._check_grave()
            raise
        said = msgpack.unpackb(answer.payload or b"", strict_map_key=False)
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
        """As that of a :class:`RemoteGroupStore`."""
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


class Lender:
    """A member's way to settle, as a :class:`shmq.native._group.GroupState` has it."""

    def __init__(self, group_state: MemberGroupStore, member: int) -> None:
        self._group_state = group_state
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
        return not self._group_state.settle(self._member, action, [receipt], ns)
