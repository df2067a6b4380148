"""Where a group of this host lives: its stream, its file, and who looks after its dead."""

from __future__ import annotations

from typing import Final

from shmq import api
from shmq.api.options import check_whole
from shmq.client.group.assignment import divided
from shmq.client.group.retention_floor import Floors
from shmq.client.transaction.recover import settle, taking
from shmq.namespace.namespace import Namespace
from shmq.native import _group

__all__ = ["GroupContext"]

_MOST: Final = (1 << 63) - 1


class GroupContext:
    """What every member of a group needs to know of it."""

    def __init__(
        self, namespace: Namespace, stream: api.Stream, name: str, group_state: _group.GroupState
    ) -> None:
        self.namespace = namespace
        self.stream = stream
        self.name = name
        self.group_state = group_state
        options = group_state.options
        self.assignment: str = options["assignment"]
        self.starts_at_the_end: bool = options["latest"]
        self.dead_letter: str | None = options["dead_letter"]
        self.session_timeout: float = options["session"] / 1e9
        self._created_at: float = options["created_at"] / 1e9
        self._partitions: list[api.PartitionOffsets] = []
        logs = getattr(stream, "logs", None)  # of this host's streams alone
        self._is_local = logs is not None
        self._floors: Floors | None = None
        if logs is not None and stream.options.overflow == "block":
            self._floors = Floors(namespace, logs, options["group_id"])
        self.widen()

    def widen(self) -> None:
        """Take notice of partitions that the stream has got meanwhile."""
        if self.stream.partitions != self.group_state.partitions:
            self.group_state.widen(self.stream.partitions)

    def look_for_dead(self) -> None:
        """Take out members whose process has ended, or whose session is over.

        Those stay for now whose transactions are not settled.
        """
        processes = {}
        for member, process, *_ in self.group_state.members():
            processes[member] = process
            if not self.namespace.is_alive(process) and settle(self.namespace, process):
                self.group_state.leave(member, True)
        while (member := self.group_state.silent()) in processes:
            with taking(self.namespace, processes.pop(member)) as may:
                if may and self.group_state.silent() == member:
                    self.group_state.leave(member, True)

    def start_of(self, partition: int) -> int:
        """Where a partition begins in which nothing was committed.

        One that came to the stream after the group begins with its first record.
        """
        if self.starts_at_the_end and not self._came_later(partition):
            return self.stream.latest(partition)
        return self.stream.earliest(partition)

    def check_offset(self, partition: int, offset: int) -> None:
        """Raises TypeError, InvalidOption unless the group can be there.

        Where the end of a server's partition is, the server looks.
        """
        count = max(self.stream.partitions, self.group_state.partitions)
        check_whole("partition", partition, 0, count - 1)
        latest = self.stream.latest(partition) if self._is_local else _MOST
        check_whole(f"partition {partition}: offset", offset, 0, latest)

    # ---- partitions that came ----

    @property
    def grown(self) -> bool:
        """Whether the stream has partitions that the group does not know of."""
        return self.stream.partitions > self.group_state.partitions

    def plan(self) -> None:
        """Divide the partitions among the members, unless that is done."""
        while not self.group_state.planned:
            epoch, members, owners = self.group_state.survey()
            begin = min(self.stream.open_partitions.start, len(owners))
            meant = divided(self.assignment, members, owners, begin)
            self.group_state.plan(epoch, meant)

    def behind(self, partition: int) -> int:
        """The partitions before this one were sealed for it: they are read before it is."""
        return self._made(partition).behind

    def has_done(self, before: int) -> bool:
        """Whether the group has committed all that is in the partitions before that one."""
        look = getattr(self.group_state, "look", None)  # of a server's: what it knows is not new
        if look is not None:
            look()
        seats = self.group_state.seats()
        ends = self.stream.offsets()
        for partition in range(before):
            committed = seats[partition][2]
            done = self.start_of(partition) if committed is None else committed
            if done < ends[partition].latest:
                return False
        return True

    def _came_later(self, partition: int) -> bool:
        made = self._made(partition)
        return bool(made.behind) and made.created_at > self._created_at

    def _made(self, partition: int) -> api.PartitionOffsets:
        if partition >= len(self._partitions):
            self._partitions = self.stream.offsets()
        return self._partitions[partition]

    # ---- what appends that wait have to keep ----

    def keep_from(self, partition: int, offset: int) -> None:
        """The group has done what is before ``offset``."""
        if self._floors is not None:
            self._floors.keep(partition, offset)

    def keep_again(self, partition: int, offset: int) -> None:
        """The group goes on at ``offset``, which may be before what it has done."""
        if self._floors is not None:
            self._floors.keep_from(partition, offset)

    def keep_all(self) -> None:
        """Of each partition what is not done: committed, or of a shared one settled."""
        if self._floors is None:
            return
        shared = self.group_state.lows() if self.assignment == "shared" else None
        for partition, seat in enumerate(self.group_state.seats()):
            done = seat[2] if shared is None else shared[partition]
            self._floors.keep(partition, self.start_of(partition) if done is None else done)

    def let_go(self) -> None:
        """The group is deleted: nothing is kept for it any more."""
        if self._floors is not None:
            self._floors.drop()
