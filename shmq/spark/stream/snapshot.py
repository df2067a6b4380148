"""What the streams of a subscription hold, and where a read of them begins and ends."""

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
    """A stream as it was looked at: its identity, and what each partition holds that is meant."""

    stream: shmq.Stream
    identity: int
    extents: Mapping[int, PartitionBounds]

    def at(self, bound: Bound, partition: int) -> int:
        """The offset that an option says. Raises InvalidOption."""
        name = self.stream.name

        def at_time(seconds: float) -> int:
            return self.stream.at(seconds, partition)

        return bound.of(name, partition, self.extents[partition], at_time)


def look(broker: shmq.Broker, topics: Topics) -> dict[str, StreamSnapshot]:
    """Every stream that is meant, by name. Raises NoSuchStream, InvalidOption."""
    return {name: see(broker.stream(name), topics) for name in topics.find(broker)}


def see(stream: shmq.Stream, topics: Topics) -> StreamSnapshot:
    """The stream, as far as it is meant. Raises InvalidOption for a partition it has not."""
    wanted = set(topics.partitions(stream.name, stream.partitions))
    extents = {
        each.partition: PartitionBounds(each.earliest, each.latest)
        for each in stream.offsets()
        if each.partition in wanted
    }
    return StreamSnapshot(stream, stream.identity, extents)


def check_within(bound: Bound, name: str, partition: int, at: int, extent: PartitionBounds) -> None:
    """Raises InvalidOption for an offset that an option names, and the partition has not yet."""
    if at > extent.latest:
        raise InvalidOption(
            f"the option {bound.option} is {at} for partition {partition} of the stream {name!r}, "
            f"whose next offset is {extent.latest}: give one up to that, or latest"
        )
