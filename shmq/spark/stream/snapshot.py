"""The extents of the streams of a subscription, and where a read of them begins and ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import shmq
from shmq.errors import InvalidOption
from shmq.spark.stream.bounds import Bound, PartitionBounds
from shmq.spark.stream.topics import Topics

__all__ = ["StreamSnapshot", "check_within", "look", "see"]


@dataclasses.dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """A stream at one moment: its identity, and the extents of the selected partitions."""

    stream: shmq.Stream
    identity: int
    extents: Mapping[int, PartitionBounds]

    def at(self, bound: Bound, partition: int) -> int:
        """The offset of a bound in a partition. Raises InvalidOption."""
        name = self.stream.name

        def at_time(seconds: float) -> int:
            return self.stream.at(seconds, partition)

        return bound.of(name, partition, self.extents[partition], at_time)


def look(broker: shmq.Broker, topics: Topics) -> dict[str, StreamSnapshot]:
    """Every selected stream, by name. Raises NoSuchStream, InvalidOption."""
    return {name: see(broker.stream(name), topics) for name in topics.find(broker)}


def see(stream: shmq.Stream, topics: Topics) -> StreamSnapshot:
    """The selected part of a stream. Raises InvalidOption for a partition that does not exist."""
    wanted = set(topics.partitions(stream.name, stream.partitions))
    extents = {
        each.partition: PartitionBounds(each.earliest, each.latest)
        for each in stream.offsets()
        if each.partition in wanted
    }
    return StreamSnapshot(stream, stream.identity, extents)


def check_within(bound: Bound, name: str, partition: int, at: int, extent: PartitionBounds) -> None:
    """Raise InvalidOption for an offset in an option that is past the end of the partition."""
    if at > extent.latest:
        raise InvalidOption(
            f"the option {bound.option} is {at} for partition {partition} of the stream {name!r}, "
            f"whose next offset is {extent.latest}: give one up to that, or latest"
        )
