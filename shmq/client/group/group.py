"""A group of consumers of a stream of this host."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, cast

from shmq import api
from shmq.api.group import GroupOptions
from shmq.api.options import check_one_of, check_whole
from shmq.client.group.group_context import GroupContext
from shmq.client.group.member import LocalMember
from shmq.client.group.member_name import member_name
from shmq.errors import MemberFenced, ShmqError
from shmq.namespace import group_files
from shmq.namespace.namespace import Namespace
from shmq.native import _group, _stream

__all__ = [
    "LocalGroup",
    "group_options",
    "open_group",
    "summaries",
    "summary_of",
]


def open_group(
    namespace: Namespace,
    stream: Any,
    name: str,
    *,
    assignment: api.Assignment | None = None,
    session_timeout: float | None = None,
    start: api.GroupStart = "earliest",
) -> LocalGroup:
    """The group of that name, made if there is none."""
    options = group_options(assignment=assignment, session_timeout=session_timeout, start=start)
    if assignment is None:
        found = group_files.look_at(namespace, stream.identity, name)
        options["assignment"] = _assignment_of(found) or "range"
    group_state = group_files.open_or_make(
        namespace, stream.name, stream.identity, name, options, stream.check_there
    )
    context = GroupContext(namespace, stream, name, group_state)
    context.keep_all()
    return LocalGroup(context)


def group_options(
    *,
    assignment: api.Assignment | None,
    session_timeout: float | None,
    start: api.GroupStart,
) -> dict[str, Any]:
    """What a group is made with. Raises TypeError, InvalidOption."""
    given = {"assignment": assignment, "session_timeout": session_timeout}
    options = GroupOptions.checked(
        {"start": start, **{key: value for key, value in given.items() if value is not None}}
    )
    return {
        "session": round(options.session_timeout * 1e9),
        "lease": 0,
        "assignment": options.assignment,
        "latest": options.start == "latest",
        "max_deliveries": None,
        "held": 0,
        "dead_letter": None,
    }


def _assignment_of(group_state: _group.GroupState | None) -> str | None:
    """That of a group whose partitions have owners."""
    found = None if group_state is None else group_state.options["assignment"]
    return None if found == "shared" else found


class LocalGroup(api.Group):
    """See :class:`shmq.api.Group`."""

    #: What its members are.
    _member = LocalMember

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._group_state = context.group_state

    @property
    def context(self) -> GroupContext:
        """Where it lives."""
        return self._context

    @property
    def name(self) -> str:
        """See :class:`shmq.api.Group`."""
        return self._context.name

    @property
    def assignment(self) -> api.Assignment:
        """See :class:`shmq.api.Group`."""
        return cast("api.Assignment", self._context.assignment)

    @property
    def session_timeout(self) -> float:
        """See :class:`shmq.api.Group`."""
        return self._context.session_timeout

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
    ) -> LocalMember:
        """See :class:`shmq.api.Group`."""
        check_whole("limit", limit, 1)
        check_one_of("lapped", lapped, ("raise", "skip"))
        check_one_of("on_damage", on_damage, ("raise", "skip"))
        _stream.check_timeout(timeout)
        _check_callable("on_assigned", on_assigned)
        _check_callable("on_revoked", on_revoked)
        return self._member(
            self._context,
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
        """See :class:`shmq.api.Group`."""
        self._context.look_for_dead()
        seats = self._group_state.seats()
        return [
            api.MemberInfo(
                id=member,
                name=name,
                process=process,
                partitions=tuple(p for p, seat in enumerate(seats) if seat[0] == member),
                joined_at=joined / 1e9,
            )
            for member, process, name, joined, _ in self._group_state.members()
        ]

    def partitions(self) -> list[api.GroupPartition]:
        """See :class:`shmq.api.Group`."""
        self._context.widen()
        return [self._partition(p, seat) for p, seat in enumerate(self._group_state.seats())]

    def _partition(self, partition: int, seat: tuple[Any, ...]) -> api.GroupPartition:
        owner, _, committed, *_ = seat
        latest = self._context.stream.latest(partition)
        begins = self._context.start_of(partition) if committed is None else committed
        return api.GroupPartition(
            partition=partition,
            member=owner or None,
            committed=committed,
            latest=latest,
            lag=max(latest - begins, 0),
        )

    def committed(self) -> dict[int, int | None]:
        """See :class:`shmq.api.Group`."""
        self._context.widen()
        return {partition: seat[2] for partition, seat in enumerate(self._group_state.seats())}

    def lag(self) -> dict[int, int]:
        """See :class:`shmq.api.Group`."""
        return {found.partition: found.lag for found in self.partitions()}

    def summary(self) -> api.GroupSummary:
        """See :class:`shmq.api.Group`."""
        return summary_of(self._context)

    # ---- changing ----

    def reset(
        self,
        to: api.GroupStart | Mapping[int, int] | float,
        partitions: Collection[int] | None = None,
    ) -> dict[int, int]:
        """See :class:`shmq.api.Group`."""
        self._context.look_for_dead()
        self._context.widen()
        offsets = self._offsets(to, partitions)
        for partition, offset in offsets.items():
            self._context.check_offset(partition, offset)
        busy = [p for p, offset in offsets.items() if not self._group_state.commit(p, 0, offset)]
        if busy:
            raise MemberFenced(
                f"partitions {sorted(busy)} of group {self.name!r} are being read: close its "
                f"members, or let them seek()"
            )
        for partition, offset in offsets.items():
            self._context.keep_again(partition, offset)
        return offsets

    def _offsets(
        self,
        to: api.GroupStart | Mapping[int, int] | float,
        partitions: Collection[int] | None,
    ) -> dict[int, int]:
        stream = self._context.stream
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
        return f"<LocalGroup {self.name!r} of stream {self._context.stream.name!r}>"


def _check_callable(what: str, value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{what}={value!r} must be callable, or None")


def summaries(namespace: Namespace, stream: api.Stream) -> list[api.GroupSummary]:
    """A line for each group of the stream, sorted by name."""
    found = []
    for name in group_files.group_names(namespace, stream.identity):
        try:
            group_state = group_files.look_at(namespace, stream.identity, name)
            if group_state is not None:
                found.append(summary_of(GroupContext(namespace, stream, name, group_state)))
        except (ShmqError, OSError) as error:
            found.append(_problem(name, str(error)))
    return found


def summary_of(context: GroupContext) -> api.GroupSummary:
    """The group's line of the list, whatever its kind."""
    context.look_for_dead()
    seats, numbers = context.group_state.seats(), context.group_state.numbers()
    shares = context.assignment == "shared"
    lag = numbers["held"]
    for partition, (_, _, committed, _, lent, _) in enumerate(seats):
        done = lent if shares else committed
        begins = context.start_of(partition) if done is None else done
        lag += max(context.stream.latest(partition) - begins, 0)
    return api.GroupSummary(
        name=context.name,
        assignment=context.assignment,
        members=len(context.group_state.members()),
        lag=lag,
        rebalances=numbers["rebalances"],
        evicted=numbers["evicted"],
        held=numbers["held"],
        acked=numbers["acked"],
        dropped=numbers["dropped"],
        dead_lettered=numbers["dead_lettered"],
        skipped=numbers["skipped"],
    )


def _problem(name: str, problem: str) -> api.GroupSummary:
    return api.GroupSummary(
        name=name, assignment="", members=0, lag=0, rebalances=0, evicted=0, problem=problem
    )
