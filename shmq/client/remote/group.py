"""The groups of a server's stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shmq import api
from shmq.api.names import check_name
from shmq.api.options import check_one_of
from shmq.client.remote.group_store import (
    RemoteGroupState,
    RemoteGroupStore,
    RemoteMemberState,
    RemoteSettler,
)
from shmq.client.shared.group import Group, group_options
from shmq.client.shared.member import member_name
from shmq.client.shared.share import Lender, Lent, Share, share_options
from shmq.errors import MemberFenced, Unsupported
from shmq.native import _core
from shmq.protocol.messages.group import Settlement
from shmq.protocol.messages.payload import pack_map, unpack_rows
from shmq.protocol.opcodes import Feature, Type

__all__ = ["RemoteLender", "delete_group", "groups_of", "open_group", "open_share"]


def open_group(stream: Any, name: str, options: Mapping[str, Any]) -> Group:
    """See ``group`` of :class:`shmq.api.Stream`."""
    group_options(**options)
    given = {key: value for key, value in options.items() if value is not None}
    state = RemoteGroupState(stream, check_name(name, "group"), given)
    state.look()
    return Group(RemoteGroupStore(stream, name, state))


def open_share(stream: Any, name: str, member: str | None, options: dict[str, Any]) -> Share:
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
    state = RemoteMemberState(stream, check_name(name, "group"), asked)
    return Share(RemoteLender(stream, name, state, member_name(member)), on_damage)


def groups_of(stream: Any) -> list[api.GroupSummary]:
    """See ``groups`` of :class:`shmq.api.Stream`."""
    asked = pack_map({"identity": stream.identity, "action": "list"})
    rows = unpack_rows(stream.ask(Type.STREAM_GROUPS, asked))
    return [api.GroupSummary(**row) for row in rows]


def delete_group(stream: Any, name: str) -> None:
    """See ``delete_group`` of :class:`shmq.api.Stream`."""
    asked = {"identity": stream.identity, "action": "delete", "group": check_name(name, "group")}
    stream.ask(Type.STREAM_GROUPS, pack_map(asked))


class RemoteLender(Lender):
    """See :class:`shmq.client.shared.share.Lender`: the server leases, and maintains the group.

    The member belongs to the stream handle's connection: when that is lost, it rejoins.
    """

    hands_over = True

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
        """See :class:`Lender`."""
        return self._settler

    def attend(self) -> None:
        """See :class:`Lender`. The server does it whenever it leases records."""

    def lend(self, limit: int, *, handed: bool) -> list[Lent]:
        """See :class:`Lender`."""
        try:
            self._ends, lent = self._state.take(self._id, limit, handed=handed)
        except MemberFenced:  # over another connection
            self._join()
            self._ends, lent = self._state.take(self._id, limit, handed=handed)
        return lent

    def outlook(self) -> tuple[float, dict[int, int]]:
        """See :class:`Lender`."""
        return self._state.due_in(), self._ends

    def ack_many(self, receipts: list[int]) -> list[int]:
        """See :class:`Lender`."""
        return self._state.settle(self._id, Settlement.ACK, receipts)

    def leave(self) -> None:
        """See :class:`Lender`."""
        self._state.leave(self._id, False)

    def drop(self) -> None:
        """See :class:`Lender`."""
        self._state.drop(self._id)
