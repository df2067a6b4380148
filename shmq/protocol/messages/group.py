"""Requests of a member of a consumer group, behind the stream's name, and their answers."""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Sequence
from typing import Any, Final, Self

from shmq.api.group import GroupSummary
from shmq.api.names import check_name
from shmq.errors import InvalidName
from shmq.native import _core
from shmq.protocol.messages.payload import (
    NO_OFFSET,
    PLACE,
    Listing,
    Numbers,
    Reply,
    pack_map,
    pack_numbers,
    unpack_map,
    unpack_numbers,
)
from shmq.protocol.opcodes import Type
from shmq.protocol.status import Refusal, whole

_SIZE: Final = struct.Struct("!H")
_MEMBER: Final = struct.Struct("!QQ")
_SEAT: Final = struct.Struct("!QQQ")
_LENT: Final = struct.Struct("!QIQI")
_TAKEN: Final = struct.Struct("!QI")
_NUMBER: Final = struct.Struct("!Q")

#: The longest time in a settlement, in ns.
_LONGEST: Final = 10**18

#: The answer to a STREAM_GROUPS that lists.
GROUPS: Final = Listing(GroupSummary)

#: A partition's owner, its assigned member (0: none), its committed offset, the time of that
#: commit, the next offset to lease, and how often the partition changed owners.
_Seat = tuple[int, int, int | None, int, int | None, int]


class Settlement(enum.IntEnum):
    """What a SHARE_SETTLE does with records."""

    ACK = 1
    NACK = 2
    REJECT = 3
    EXTEND = 4
    HAND = 5
    LOST = 6
    RETURN = 7


@dataclasses.dataclass(frozen=True, slots=True)
class MemberRequest:
    """The beginning of every request of a member, and the ``rest`` behind it.

    ``identity`` is the stream's; ``member`` 0: no member.
    """

    group: str
    identity: int
    member: int
    rest: bytes = b""

    def pack(self) -> bytes:
        """The payload behind the stream's name."""
        raw = self.group.encode()
        return b"".join(
            (_SIZE.pack(len(raw)), raw, _MEMBER.pack(self.identity, self.member), self.rest)
        )

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the stream's name. Raises Refusal."""
        if len(rest) < _SIZE.size:
            raise Refusal.bad("behind the stream's name is a group's")
        at = _SIZE.size + _SIZE.unpack_from(rest)[0]
        if len(rest) < at + _MEMBER.size:
            raise Refusal.bad("behind a group's name are two numbers of 64 bits")
        try:
            group = check_name(rest[_SIZE.size : at].decode("ascii"), "group")
        except (UnicodeDecodeError, InvalidName) as error:
            raise Refusal.bad(str(error)) from error
        identity, member = _MEMBER.unpack_from(rest, at)
        return cls(group, identity, member, rest[at + _MEMBER.size :])


@dataclasses.dataclass(frozen=True, slots=True)
class Join:
    """A JOIN: the options of the group, if it is made, and the member's name.

    ``shared``: the members lease single records; ``on_damage`` is for such a member.
    """

    options: dict[str, Any]
    member: str | None = None
    shared: bool = False
    on_damage: str | None = None

    def pack(self) -> bytes:
        """The payload behind the member."""
        others = {"on_damage": self.on_damage, "member": self.member}
        asked = {**self.options, **({"shared": True} if self.shared else {})}
        return pack_map(asked | {key: value for key, value in others.items() if value is not None})

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Unpack the payload behind the member. Raises Refusal."""
        options = unpack_map(raw)
        member, shared = options.pop("member", None), options.pop("shared", False)
        if member is not None and not isinstance(member, str):
            raise Refusal.bad("'member' must be of type str")
        on_damage = options.pop("on_damage", None)
        if on_damage is not None and not shared:
            raise Refusal.bad("'on_damage' is for a share group")
        return cls(options, member, bool(shared), on_damage)


@dataclasses.dataclass(frozen=True, slots=True)
class Joined(Reply):
    """The answer to a JOIN: the member's number, and the options that the group has."""

    member: int
    options: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class GroupsRequest:
    """A STREAM_GROUPS: "list" the groups of a stream, or "look" at or "delete" one of them.

    A look makes the group with these options; with a ``group_id``, or without ``create``, it makes
    none.
    """

    identity: int
    action: str
    group: str | None = None
    group_id: int | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    create: bool = True

    def pack(self) -> bytes:
        """The payload behind the name."""
        create = None if self.create else False
        asked = {"group": self.group, "group_id": self.group_id, "create": create}
        given = {key: value for key, value in asked.items() if value is not None}
        return pack_map({"identity": self.identity, "action": self.action, **given, **self.options})

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        asked = unpack_map(rest)
        identity, action = asked.pop("identity", 0), asked.pop("action", None)
        if not isinstance(identity, int):
            raise Refusal.bad("'identity' must be of type int")
        if action == "list":
            return cls(identity, action)
        group = asked.pop("group", None)
        if not isinstance(group, str):
            raise Refusal.bad("'group' must be of type str")
        if not isinstance(action, str) or action not in {"look", "delete"}:
            raise Refusal.bad("'action' must be 'list', 'look' or 'delete'")
        create = asked.pop("create", True)
        if not isinstance(create, bool):
            raise Refusal.bad("'create' must be of type bool")
        return cls(identity, action, group, asked.pop("group_id", None), asked, create)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupView(Reply):
    """The answer to a STREAM_GROUPS that looks.

    A row of ``members``: id, process number, name, joining time, deadline.
    """

    options: dict[str, Any]
    members: list[tuple[int, int, str, int, int]]
    seats: list[_Seat]
    numbers: dict[str, int]


def unpack_places(raw: bytes, partitions: int) -> list[tuple[int, int]]:
    """The partitions and offsets of a SEATS or a COMMIT, checked. Raises Refusal."""
    if len(raw) % PLACE.size:
        raise Refusal.bad("partitions and offsets have 12 bytes each")
    places: list[tuple[int, int]] = list(PLACE.iter_unpack(raw))
    for partition, offset in places:
        if partition >= partitions or offset >= 1 << 63:
            raise Refusal.bad(f"partition {partition}, offset {offset}: there is none such")
    return places


@dataclasses.dataclass(frozen=True, slots=True)
class Seats(Numbers):
    """A SEATS: the member takes partitions, or releases them; ``places`` are packed."""

    type = Type.SEATS
    tail = (bytes, bytes)
    takes: bool
    places: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class GroupChange:
    """The answer to a HEARTBEAT: the change of the group, and its partitions if that is new.

    For each partition: the member that has it, the member it is assigned to, and the committed
    offset or None.
    """

    change: int
    seats: Sequence[tuple[int, int, int | None]] | None = None

    def pack(self) -> bytes:
        """The payload of the answer."""
        rows = (
            _SEAT.pack(owner, meant, NO_OFFSET if committed is None else committed)
            for owner, meant, committed in self.seats or ()
        )
        return _NUMBER.pack(self.change) + b"".join(rows)

    @classmethod
    def unpack(cls, answer: _core.Answer) -> Self:
        """Unpack the answer. Raises ServerError."""
        said = memoryview(whole(answer, _NUMBER.size))
        (change,) = _NUMBER.unpack_from(said)
        if len(said) == _NUMBER.size:
            return cls(change)
        rows = _SEAT.iter_unpack(said[_NUMBER.size :])
        seats = [(owner, meant, None if at == NO_OFFSET else at) for owner, meant, at in rows]
        return cls(change, seats)


@dataclasses.dataclass(frozen=True, slots=True)
class ShareTaken:
    """The answer to a SHARE_TAKE.

    ``due``: how many ns until a leased or delayed record is due. ``ends``: by partition, the next
    offset to lease, or None. ``lent``: receipts, partitions, offsets and deliveries so far.
    ``damaged``: for a member that skips damage, how many records it skipped.
    """

    due: int
    ends: Sequence[int | None]
    lent: Sequence[tuple[int, int, int, int]]
    damaged: int | None = None

    def pack(self) -> bytes:
        """The payload of the answer."""
        return b"".join(
            (
                _TAKEN.pack(self.due, len(self.ends)),
                pack_numbers(NO_OFFSET if end is None else end for end in self.ends),
                b"" if self.damaged is None else _NUMBER.pack(self.damaged),
                *(_LENT.pack(*each) for each in self.lent),
            )
        )

    @classmethod
    def unpack(cls, answer: _core.Answer, *, skips_damage: bool) -> Self:
        """Unpack the answer; ``skips_damage``: whether the member skips damage."""
        raw = whole(answer, _TAKEN.size)
        due, count = _TAKEN.unpack_from(raw)
        at = _TAKEN.size + 8 * count
        raw = whole(answer, at + 8 * skips_damage)
        ends = [None if end == NO_OFFSET else end for end in unpack_numbers(raw[_TAKEN.size : at])]
        damaged = _NUMBER.unpack_from(raw, at)[0] if skips_damage else None
        lent = list(_LENT.iter_unpack(raw[at + 8 * skips_damage :]))
        return cls(due, ends, lent, damaged)


@dataclasses.dataclass(frozen=True, slots=True)
class ShareSettle(Numbers):
    """A SHARE_SETTLE: the action on the receipts, with its time in ns."""

    type = Type.SHARE_SETTLE
    tail = (pack_numbers, unpack_numbers)
    action: int
    ns: int
    receipts: list[int]

    def check(self) -> None:
        if not Settlement.ACK <= self.action <= Settlement.RETURN or self.ns > _LONGEST:
            raise Refusal.bad("a SHARE_SETTLE is 1 to 7, and of at most 10^18 ns")
