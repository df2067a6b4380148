"""The groups of a server's stream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgpack

from shmq import api
from shmq.api.names import check_name
from shmq.api.options import check_one_of, check_whole
from shmq.client.group.group import LocalGroup, group_options
from shmq.client.group.group_context import GroupContext
from shmq.client.group.member import LocalMember
from shmq.client.group.member_name import member_name
from shmq.client.group.share import (
    LentRecord,
    LocalShare,
    checked_receipts,
    share_options,
)
from shmq.client.remote.group_store import (
    Lender,
    MemberGroupStore,
    RemoteGroupStore,
    ServerNamespace,
)
from shmq.errors import Empty, MemberFenced, Unsupported
from shmq.native import _core, _stream
from shmq.protocol.messages.group import Settlement
from shmq.protocol.opcodes import Feature, Type

__all__ = ["RemoteGroup", "RemoteShare", "delete_group", "groups_of", "open_group", "open_share"]


class RemoteMember(LocalMember):
    """A member of a group of a server's stream."""

    def _attend(self) -> None:
        cast(
            "MemberGroupStore", self._group_state
        ).forget()  # between two records it need not be asked
        super()._attend()

    def _drop(self) -> None:
        self._closed = True
        if _core.generation() == self._generation:
            cast("MemberGroupStore", self._group_state).drop(self._id)

    def _why_out(self) -> str:
        if cast("MemberGroupStore", self._group_state).has_lost_connection:
            return "the connection that it was one by was lost"
        return super()._why_out()


class RemoteGroup(LocalGroup):
    """A group of a server's stream; its members are those of the handle's connection."""

    _member = RemoteMember

    def __init__(self, stream: Any, name: str, group_state: RemoteGroupStore) -> None:
        super().__init__(_context(stream, name, group_state))
        self._remote = group_state

    def join(self, name: str | None = None, **options: Any) -> LocalMember:
        """See :class:`shmq.api.Group`."""
        self._remote.look()  # which raises where a JOIN would make the group again
        made = RemoteGroup(self._context.stream, self.name, self._remote.member())
        return LocalGroup.join(made, name, **options)


def open_group(stream: Any, name: str, options: Mapping[str, Any]) -> RemoteGroup:
    """See ``group`` of :class:`shmq.api.Stream`."""
    group_options(**options)
    given = {key: value for key, value in options.items() if value is not None}
    group_state = RemoteGroupStore(stream, check_name(name, "group"), given)
    group_state.look()
    return RemoteGroup(stream, name, group_state)


def open_share(stream: Any, name: str, member: str | None, options: dict[str, Any]) -> RemoteShare:
    """See ``share`` of :class:`shmq.api.Stream`."""
    on_damage = options.pop("on_damage", "raise")
    check_one_of("on_damage", on_damage, ("raise", "skip"))
    share_options(options)
    asked = {**options, "shared": True}
    if on_damage == "skip":
        greeting = stream.connection.greeting
        if greeting is None or Feature.ON_DAMAGE not in greeting.features:
            raise Unsupported(
                f"on_damage='skip': the server of stream {stream.name!r} cannot pass over damage "
                f"for a group that shares: it needs a newer version of shmq"
            )
        asked["on_damage"] = on_damage
    group_state = MemberGroupStore(stream, check_name(name, "group"), asked)
    return RemoteShare(stream, name, group_state, member_name(member), on_damage)


def groups_of(stream: Any) -> list[api.GroupSummary]:
    """See ``groups`` of :class:`shmq.api.Stream`."""
    asked = msgpack.packb({"identity": stream.identity, "action": "list"})
    rows = msgpack.unpackb(stream.ask(Type.STREAM_GROUPS, asked).payload or b"\x90")
    return [api.GroupSummary(**row) for row in rows]


def delete_group(stream: Any, name: str) -> None:
    """See ``delete_group`` of :class:`shmq.api.Stream`."""
    asked = {"identity": stream.identity, "action": "delete", "group": check_name(name, "group")}
    stream.ask(Type.STREAM_GROUPS, msgpack.packb(asked))


def _context(stream: Any, name: str, group_state: RemoteGroupStore) -> GroupContext:
    return GroupContext(cast("Any", ServerNamespace()), stream, name, cast("Any", group_state))


class RemoteShare(LocalShare):
    """A member, of the handle's connection, of a group that shares a server's stream.

    The server lends and looks after the group; the records are read as any others.
    """

    def __init__(
        self,
        stream: Any,
        name: str,
        group_state: MemberGroupStore,
        member: str,
        on_damage: api.OnDamage,
    ) -> None:
        self._group = group_state
        self._ends: dict[int, int] = {}
        self._handed = True
        _, first = group_state.join(0, member.encode())  # which makes it, and tells its options
        group_state.leave(first, False)
        super().__init__(_context(stream, name, group_state), cast("Any", None), member, on_damage)

    @property
    def damaged(self) -> int:
        """See :class:`shmq.api.Share`."""
        return self._damaged + self._group.damaged

    def _enter(self) -> None:
        self._generation = _core.generation()
        self._at, self._id = self._group.join(0, self._member.encode())
        self._group_state = cast("Any", Lender(self._group, self._id))

    def get_many(
        self, limit: int, block: bool = True, timeout: float | None = None
    ) -> list[LentRecord]:
        """See :class:`shmq.api.Share`."""
        self._handed = True
        check_whole("limit", limit, 1)
        if block:
            _stream.check_timeout(timeout)
        found = self._take(limit, timeout if block else 0.0)
        if not found:
            raise Empty(f"no record for {self._what} came within the time allowed")
        return [record.hand_over(self._lease) for record in found]

    def _consume(self, prefetch: int, timeout: float | None) -> Iterator[LentRecord]:
        self._handed = False
        return super()._consume(prefetch, timeout)

    def ack_many(self, receipts: Iterable[int]) -> list[int]:
        """See :class:`shmq.api.Share`."""
        self._check_open()
        return self._group.settle(self._id, Settlement.ACK, checked_receipts(receipts))

    def _lend(self, limit: int) -> list[LentRecord]:
        try:
            self._ends, lent = self._group.take(self._id, limit, handed=self._handed)
        except MemberFenced:  # another connection
            self._enter()
            self._ends, lent = self._group.take(self._id, limit, handed=self._handed)
        return self._read(lent)

    def _attend(self) -> None:
        """The server does it, where records are taken."""

    def _wait(self, seconds: float) -> None:
        seconds = min(seconds, max(self._group.due_in(), 0.001))
        stream = self._context.stream
        if not self._ends or any(stream.latest(p) > at for p, at in self._ends.items()):
            time.sleep(seconds)  # no entry is free: somebody has to settle first
            return
        with stream.reader(self._ends, self._ends, limit=1, lapped="skip") as reader:
            reader.poll(seconds)

    def close(self) -> None:
        """See :class:`shmq.api.Share`."""
        if not self._closed:
            self._closed = True
            if _core.generation() == self._generation:
                self._group.leave(self._id, False)

    def _drop(self) -> None:
        self._closed = True
        if _core.generation() == self._generation:
            self._group.drop(self._id)
