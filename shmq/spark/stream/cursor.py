"""Decides at the driver how far each batch of a query goes.

One process beside the driver plans every batch of a query and lives as long as the query. Its
whole history is in the offsets that Spark gives it, so another process can continue.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import shmq
from shmq.api.names import check_name
from shmq.errors import InvalidOption, OffsetOutOfRange, StreamDeleted
from shmq.spark.shared.address import Address
from shmq.spark.shared.handles import Handles
from shmq.spark.shared.shares import divide
from shmq.spark.shared.subscription import Subscription
from shmq.spark.stream.bounds import (
    LATEST,
    Bound,
    PartitionBounds,
    StreamSnapshot,
    check_within,
    see,
)
from shmq.spark.stream.offset import HOW, NOWHERE, Place, Progress, StreamOffset, pass_over

_log = logging.getLogger("shmq.spark")


@dataclasses.dataclass(frozen=True, slots=True)
class _Backlog:
    """The unread offsets of a partition."""

    place: Place
    start: int
    end: int
    #: Earlier records of its keys are in partitions below this number.
    behind: int
    #: Whether the start is not in the previous offset, so that the new one must have it.
    begins: bool

    def __len__(self) -> int:
        return self.end - self.start


class Cursor(Handles[shmq.Stream]):
    """Decides how far each batch goes."""

    def __init__(
        self, address: Address, subscription: Subscription, chosen: Mapping[str, Any]
    ) -> None:
        super().__init__(address, subscription, chosen)
        self._starting = Bound.starting(chosen, LATEST)
        self._group: str | None = chosen["group"]
        self._prefix: str | None = chosen["groupIdPrefix"]
        if self._group is not None:
            check_name(self._group)
        if self._group is not None and self._prefix is not None:
            raise InvalidOption(
                f"the options group={self._group!r} and groupIdPrefix={self._prefix!r} both "
                f"name the query's group: leave one of them out"
            )
        #: Whether the group, not an option, sets where the query begins.
        self._by_group = self._group is not None and self._starting.default
        self._tasks: int | None = chosen["minPartitions"]
        self._stay: dict[Place, int] | None = None
        self._seen: dict[str, StreamSnapshot] | None = None
        #: The offset that waits first in a partition, and the time of its record.
        self._first: dict[Place, tuple[int, float]] = {}
        self._reached = NOWHERE
        self._done = NOWHERE

    def look(self) -> dict[str, StreamSnapshot]:
        """What the streams hold now. Raises NoSuchStream for a named stream that is missing."""
        self._seen = {}
        for name in self.names():
            with self._gone_is_fine(name):
                self._seen[name] = see(self._handle(name), self._subscription)
        return self._seen

    def stay(self) -> None:
        """From now on read no further than the current ends of the streams."""
        self._stay = {
            (name, partition): extent.latest
            for name, seen in self.look().items()
            for partition, extent in seen.extents.items()
        }

    def next(self, begin: StreamOffset, most: int | None) -> tuple[StreamOffset, int]:
        """The end of the batch that starts at ``begin``, and how many records wait there.

        The batch has at most ``most`` records, divided among the partitions by
        :func:`~shmq.spark.shared.shares.divide`. Raises OffsetOutOfRange and StreamDeleted if
        records are lost and that is an error.
        """
        seen = self.look()
        if begin == NOWHERE:
            self._starting.check({name: tuple(each.extents) for name, each in seen.items()})
        waiting = [each for name in seen for each in self._list_backlogs(name, seen[name], begin)]
        ready = waiting if most is None else _list_ready(waiting, most)
        shares, turn = divide({each.place: len(each) for each in ready}, most, begin.turn)
        streams = dict(begin.streams)
        for name, each in seen.items():
            own = [one for one in waiting if one.place[0] == name]
            streams[name] = Progress(
                each.identity,
                {
                    **_list_unselected(begin, name, each),
                    **{one.place[1]: one.start + shares.get(one.place, 0) for one in own},
                },
                {one.place[1]: one.start for one in own if one.begins},
            )
        end = StreamOffset(streams, self._own_group(begin), turn, self._tasks)
        return end, sum(map(len, waiting))

    def reached(self, batch: StreamOffset) -> None:
        """Note the end of the batch that was just begun."""
        self._reached = batch

    def done(self, offset: StreamOffset) -> None:
        """Commit an offset that Spark has committed to the group, if there is one.

        Raises MemberFenced if the group has members: only members may commit then.
        """
        group = self._group or offset.group
        if group is None or offset in (NOWHERE, self._done):
            return
        for name, progress in offset.streams.items():
            with self._gone_is_fine(name):
                stream = self._handle(name)
                if stream.identity == progress.identity:
                    stream.group(group).reset(dict(progress.next), tuple(progress.next))
        self._done = offset

    def report(self) -> dict[str, Any]:
        """The records after the newest batch, and where each partition ended when it was planned.

        ``backlog`` is their number, ``oldest`` the age of the first of them in seconds.
        """
        ends, backlog, first = {}, 0, math.inf
        for name, seen in (self.look() if self._seen is None else self._seen).items():
            ends[name] = {str(number): extent.latest for number, extent in seen.extents.items()}
            read = self._reached.streams.get(name)
            for partition, at in read.next.items() if read is not None else ():
                extent = seen.extents.get(partition)
                if extent is not None and at < extent.latest:
                    backlog += extent.latest - at
                    first = min(first, self._read_time(name, partition, at))
        oldest = max(0.0, round(time.time() - first, 3)) if backlog else 0.0
        return {"backlog": backlog, "oldest": oldest, "offsets": ends}

    def _read_time(self, name: str, partition: int, at: int) -> float:
        """The time of the record that waits first, which is read once; infinite: it is gone."""
        known, time_of = self._first.get((name, partition), (None, math.inf))
        if known != at:
            with self._gone_is_fine(name):
                time_of = _find_timestamp(self._handle(name), partition, at)
                self._first[name, partition] = at, time_of
        return time_of

    def _open(self, broker: shmq.Broker, name: str) -> shmq.Stream:
        return broker.stream(name)

    def _own_group(self, begin: StreamOffset) -> str | None:
        """The group of ``groupIdPrefix``: made up for the first batch, then kept in the offsets."""
        if self._prefix is None:
            return None
        if begin.group is not None and begin.group.startswith(f"{self._prefix}-"):
            return begin.group
        return check_name(f"{self._prefix}-{secrets.token_hex(4)}")

    def _list_backlogs(
        self, name: str, seen: StreamSnapshot, begin: StreamOffset
    ) -> Iterator[_Backlog]:
        before = begin.streams.get(name)
        if before is not None and before.identity != seen.identity:
            message = f"the stream {name!r} was deleted and recreated since it was read"
            if self._strict:
                raise StreamDeleted(f"{message}; {HOW}")
            _log.warning("%s: it is read from its beginning", message)
            before = None
        committed = self._get_committed(seen) if begin == NOWHERE else {}
        for partition, extent in seen.extents.items():
            start = None if before is None else before.next.get(partition)
            begins = start is None
            if start is None:
                start = committed.get(partition)
            if start is None:
                start = self._start(name, seen, partition, begin)
            found = self._find_start(name, partition, start, extent)
            end = extent.latest
            if self._stay is not None:
                end = min(end, self._stay.get((name, partition), found))
            begins = begins or found != start
            yield _Backlog((name, partition), found, max(found, end), extent.behind, begins)

    def _start(self, name: str, seen: StreamSnapshot, partition: int, begin: StreamOffset) -> int:
        """Where to begin a partition not read before; a later one begins at its first record."""
        extent = seen.extents[partition]
        if begin != NOWHERE:
            return extent.earliest
        start = seen.at(self._starting, partition)
        check_within(self._starting, name, partition, start, extent)
        return start

    def _get_committed(self, seen: StreamSnapshot) -> Mapping[int, int]:
        """The offsets committed by the group, if the query begins there."""
        if self._group is None or not self._by_group:
            return {}
        committed = seen.stream.group(self._group).committed()
        return {partition: at for partition, at in committed.items() if at is not None}

    def _find_start(self, name: str, partition: int, start: int, extent: PartitionBounds) -> int:
        """Where to continue: at ``start``, or nearby if that is gone or never existed."""
        if extent.earliest <= start <= extent.latest:
            return start
        found = extent.earliest if start < extent.earliest else extent.latest
        there = extent.earliest, extent.latest
        pass_over(name, partition, start, found, there, strict=self._strict)
        return found


def _list_ready(waiting: Sequence[_Backlog], most: int) -> Sequence[_Backlog]:
    """Those of which a batch of ``most`` records may have some.

    If not all fit, a partition waits until the batches before have had everything in the partitions
    that it is behind, so that the records of a key come in their order.
    """
    if sum(map(len, waiting)) <= most:
        return waiting
    first: dict[str, int] = {}
    for each in waiting:
        if len(each):
            name, partition = each.place
            first[name] = min(first.get(name, partition), partition)
    return [each for each in waiting if each.behind <= first.get(each.place[0], each.behind)]


def _list_unselected(begin: StreamOffset, name: str, seen: StreamSnapshot) -> Mapping[int, int]:
    """The next offsets of partitions that only an earlier run of the query has read.

    They are stored on, so that a later run with its earlier options reads no record again.
    """
    before = begin.streams.get(name)
    if before is None or before.identity != seen.identity:
        return {}
    return {number: at for number, at in before.next.items() if number not in seen.extents}


def _find_timestamp(stream: shmq.Stream, partition: int, at: int) -> float:
    """The time of the record at that offset, or of the next one; infinite: none is there."""
    try:
        found = stream.read(partition, at, 1)
    except OffsetOutOfRange as error:
        found = stream.read(partition, error.earliest, 1)
    return found[0].timestamp if len(found) else math.inf
