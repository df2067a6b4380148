"""A consumer group of a stream: its options, its progress and its members."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, cast

from shmq import api
from shmq.api.group import GroupOptions
from shmq.api.options import check_one_of, check_whole, checked
from shmq.client.handles.member import Member, member_name
from shmq.client.ports.group import GroupStore
from shmq.errors import MemberFenced
from shmq.native import _core


def group_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The checked options of a group. Raises TypeError, InvalidOption."""
    options = checked(GroupOptions, given)
    return {
        "session": round(options.session_timeout * 1e9),
        "lease": 0,
        "assignment": options.assignment,
        "latest": options.start == "latest",
        "max_deliveries": None,
        "held": 0,
        "dead_letter": None,
    }


class Group(api.Group):
    """Implements :class:`shmq.api.Group`."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._state = store.state

    @property
    def store(self) -> GroupStore:
        """The state of the group."""
        return self._store

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def assignment(self) -> api.Assignment:
        return cast("api.Assignment", self._store.assignment)

    @property
    def session_timeout(self) -> float:
        return self._store.session_timeout

    def join(
        self,
        name: str | None = None,
        *,
        timeout: float | None = None,
        limit: int = 1000,
        lapped: Literal["raise", "skip"] = "raise",
        where: str | None = None,
        on_damage: api.OnDamage = "raise",
        on_assigned: api.OnPartitions | None = None,
        on_revoked: api.OnPartitions | None = None,
    ) -> Member:
        check_whole("limit", limit, 1)
        check_one_of("lapped", lapped, ("raise", "skip"))
        check_one_of("on_damage", on_damage, ("raise", "skip"))
        timeout = _core.check_timeout(timeout)
        _check_callable("on_assigned", on_assigned)
        _check_callable("on_revoked", on_revoked)
        return Member(
            self._store,
            member_name(name),
            timeout=timeout,
            limit=limit,
            lapped=lapped,
            where=where,
            on_damage=on_damage,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )

    # ---- looking ----

    def members(self) -> list[api.MemberInfo]:
        self._store.look_for_dead()
        seats = self._state.seats()
        return [
            api.MemberInfo(
                id=member,
                name=name,
                process=process,
                partitions=tuple(p for p, seat in enumerate(seats) if seat[0] == member),
                joined_at=joined / 1e9,
            )
            for member, process, name, joined, _ in self._state.members()
        ]

    def partitions(self) -> list[api.GroupPartition]:
        self._store.widen()
        return [self._partition(p, seat) for p, seat in enumerate(self._state.seats())]

    def _partition(self, partition: int, seat: tuple[Any, ...]) -> api.GroupPartition:
        owner, _, committed, *_ = seat
        latest = self._store.stream.latest(partition)
        begins = self._store.start_of(partition) if committed is None else committed
        return api.GroupPartition(
            partition=partition,
            member=owner or None,
            committed=committed,
            latest=latest,
            lag=max(latest - begins, 0),
        )

    def committed(self) -> dict[int, int | None]:
        self._store.widen()
        return {partition: seat[2] for partition, seat in enumerate(self._state.seats())}

    def lag(self) -> dict[int, int]:
        return {found.partition: found.lag for found in self.partitions()}

    def summary(self) -> api.GroupSummary:
        return summary_of(self._store)

    # ---- changing ----

    def reset(
        self,
        to: api.GroupStart | Mapping[int, int] | float,
        partitions: Collection[int] | None = None,
    ) -> dict[int, int]:
        self._store.look_for_dead()
        self._store.widen()
        offsets = self._offsets(to, partitions)
        for partition, offset in offsets.items():
            self._store.check_offset(partition, offset)
        busy = [p for p, offset in offsets.items() if not self._state.commit(p, 0, offset)]
        if busy:
            raise MemberFenced(
                f"partitions {sorted(busy)} of group {self.name!r} are being read: close its "
                f"members, or let them seek()"
            )
        for partition, offset in offsets.items():
            self._store.keep_again(partition, offset)
        return offsets

    def _offsets(
        self, to: api.GroupStart | Mapping[int, int] | float, partitions: Collection[int] | None
    ) -> dict[int, int]:
        stream = self._store.stream
        most = stream.partitions - 1
        wanted = range(stream.partitions) if partitions is None else list(partitions)
        for partition in wanted:
            check_whole("partition", partition, 0, most)
        if isinstance(to, Mapping):
            return {p: at for p, at in to.items() if partitions is None or p in wanted}
        if isinstance(to, str):
            check_one_of("to", to, ("earliest", "latest"))
            find = stream.earliest if to == "earliest" else stream.latest
            return {partition: find(partition) for partition in sorted(wanted)}
        return {partition: stream.at(to, partition) for partition in sorted(wanted)}

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of stream {self._store.stream.name!r}>"


def _check_callable(what: str, value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{what}={value!r} must be callable, or None")


def summary_of(store: GroupStore) -> api.GroupSummary:
    """The group's entry of the list, whatever its kind."""
    store.look_for_dead()
    seats, numbers = store.state.seats(), store.state.numbers()
    shares = store.assignment == "shared"
    lag = numbers["held"]
    for partition, (_, _, committed, _, lent, _) in enumerate(seats):
        done = lent if shares else committed
        begins = store.start_of(partition) if done is None else done
        lag += max(store.stream.latest(partition) - begins, 0)
    return api.GroupSummary(
        name=store.name,
        assignment=store.assignment,
        members=len(store.state.members()),
        lag=lag,
        rebalances=numbers["rebalances"],
        evicted=numbers["evicted"],
        held=numbers["held"],
        acked=numbers["acked"],
        dropped=numbers["dropped"],
        dead_lettered=numbers["dead_lettered"],
        skipped=numbers["skipped"],
    )
