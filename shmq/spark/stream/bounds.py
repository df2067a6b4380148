"""Where a read of a stream begins and ends, by options with Kafka's names.

A bound is given in one of four ways: a word for all partitions, an offset for each partition,
a time for all, or a time for each. In JSON -2 is the earliest offset, and -1 the latest.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import shmq
from shmq.errors import InvalidOption
from shmq.spark.shared import options
from shmq.spark.shared.subscription import Subscription

EARLIEST: Final = -2
LATEST: Final = -1

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_LAST: Final = (1 << 63) - 1
#: The last time that a record can have, in ms since 1970.
_LAST_MS: Final = (1 << 33) * 1000 - 1

#: A number for each partition, by stream.
Numbers = Mapping[str, Mapping[int, int]]


def offsets(given: str) -> int | Numbers:
    """``earliest``, ``latest``, or an offset for each partition as JSON. Raises ValueError."""
    word = _WORDS.get(given.strip().lower())
    if word is not None:
        return word
    return _parse_numbers(
        given, (EARLIEST, _LAST), 'earliest, latest, or JSON as {"orders": {"0": 23, "1": -2}}'
    )


def timestamp(given: str) -> int:
    """A time in ms since 1970, given so or as ISO 8601. Raises ValueError."""
    found = options.moment(given) // 1000
    if not 0 <= found <= _LAST_MS:
        raise ValueError("a time from 1970 to 2242")
    return found


def timestamps(given: str) -> Numbers:
    """A time in ms since 1970 for each partition, as JSON. Raises ValueError."""
    allowed = 'ms since 1970, up to the year 2242, as JSON, as {"orders": {"0": 1767225600000}}'
    return _parse_numbers(given, (0, _LAST_MS), allowed)


def _parse_numbers(given: str, within: tuple[int, int], allowed: str) -> Numbers:
    try:
        return {
            name: {_parse_partition(text): _parse_whole(number, *within) for text, number in each}
            for name, each in ((name, each.items()) for name, each in json.loads(given).items())
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ValueError(allowed) from None


def _parse_partition(text: str) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,9}", text):
        raise ValueError(text)
    return int(text)


def _parse_whole(number: Any, least: int, most: int) -> int:
    if type(number) is not int or not least <= number <= most:
        raise ValueError(number)
    return number


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionBounds:
    """The bounds of a partition: its first offset, and the next one to be written."""

    earliest: int
    latest: int
    #: Earlier records of its keys are in partitions below this number.
    behind: int = 0


#: The first offset of a partition at or after a time in s since 1970, or else the latest one.
AtTime = Callable[[float], int]


@dataclasses.dataclass(frozen=True)
class Bound:
    """One end of a read, and the options that set it."""

    option: str
    #: An offset, `EARLIEST` or `LATEST`, or if ``timed`` a time in ms since 1970: for all
    #: partitions, or for each.
    value: int | Numbers
    timed: bool = False
    #: Whether it is an error that no record has that time or a later one; if not, the bound is
    #: the latest offset.
    strict: bool = True
    #: Whether no option sets it.
    default: bool = False

    @property
    def each(self) -> Numbers:
        """The number for each partition; empty if all have the same."""
        return {} if isinstance(self.value, int) else self.value

    @property
    def word(self) -> int | None:
        """`EARLIEST` or `LATEST` if it is that for all partitions."""
        return self.value if isinstance(self.value, int) and not self.timed else None

    def has(self, word: int) -> bool:
        """Whether it is `EARLIEST` or `LATEST` for all partitions, or for any."""
        named = (number for each in self.each.values() for number in each.values())
        return not self.timed and word in (self.value, *named)

    @classmethod
    def starting(cls, chosen: Mapping[str, Any], default: int) -> Self:
        """Where a read begins; at ``default`` without any option."""
        strict = chosen["startingOffsetsByTimestampStrategy"] == "error"
        return cls._parse(chosen, "starting", default, strict=strict)

    @classmethod
    def ending(cls, chosen: Mapping[str, Any]) -> Self:
        """Where a batch ends. Raises InvalidOption for an invalid end."""
        bound = cls._parse(chosen, "ending", LATEST, strict=False)
        if bound.has(EARLIEST):
            raise InvalidOption(
                "endingOffsets is the earliest offset (earliest, or -2), and nothing would be "
                "read: leave it out, or give an offset"
            )
        return bound

    @classmethod
    def _parse(cls, chosen: Mapping[str, Any], which: str, default: int, *, strict: bool) -> Self:
        """The bound. The time for all takes precedence, then the times, then the offsets."""
        for option, timed in (
            (f"{which}Timestamp", True),
            (f"{which}OffsetsByTimestamp", True),
            (f"{which}Offsets", False),
        ):
            if chosen[option] is not None:
                return cls(option, chosen[option], timed, strict)
        return cls(option, default, default=True)

    def of(self, name: str, partition: int, extent: PartitionBounds, at_time: AtTime) -> int:
        """The offset for a partition of a stream. Raises InvalidOption if none is given."""
        number = (
            self.value if isinstance(self.value, int) else self._resolve_offset(name, partition)
        )
        if self.timed:
            return self._find_offset(name, partition, number, extent, at_time)
        if number == EARLIEST:
            return extent.earliest
        return extent.latest if number == LATEST else number

    def check(self, there: Mapping[str, tuple[int, ...]]) -> None:
        """Raise InvalidOption for a bound of a stream or partition that is not read."""
        for name, each in self.each.items():
            strange = sorted(set(each) - set(there.get(name, ())))
            if strange:
                raise InvalidOption(
                    f"the option {self.option} says something of partition {strange[0]} of the "
                    f"stream {name!r}, which is not read: leave it out, or subscribe to it"
                )

    def _resolve_offset(self, name: str, partition: int) -> int:
        found = self.each.get(name, {}).get(partition)
        if found is None:
            raise InvalidOption(
                f"the option {self.option} says nothing of partition {partition} of the stream "
                f"{name!r}: it must have a number for each partition that is read"
            )
        return found

    def _find_offset(
        self, name: str, partition: int, time: int, extent: PartitionBounds, at_time: AtTime
    ) -> int:
        found = at_time(time / 1000)
        if found < extent.latest:
            return found
        if self.strict:
            raise InvalidOption(
                f"the option {self.option} is {time} for partition {partition} of the stream "
                f"{name!r}, and no record of it is of that time or later: give an earlier one, or "
                f".option('startingOffsetsByTimestampStrategy', 'latest')"
            )
        return extent.latest


@dataclasses.dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """A stream at one moment: its identity, and the extents of the selected partitions."""

    stream: shmq.Stream
    identity: int
    extents: Mapping[int, PartitionBounds]

    def at(self, bound: Bound, partition: int) -> int:
        """The offset of a bound in a partition. Raises InvalidOption."""
        at_time = functools.partial(self.stream.at, partition=partition)
        return bound.of(self.stream.name, partition, self.extents[partition], at_time)


def look(broker: shmq.Broker, subscription: Subscription) -> dict[str, StreamSnapshot]:
    """Every selected stream, by name. Raises NoSuchStream, InvalidOption."""
    return {name: see(broker.stream(name), subscription) for name in subscription.find(broker)}


def see(stream: shmq.Stream, subscription: Subscription) -> StreamSnapshot:
    """The selected part of a stream. Raises InvalidOption for a partition that does not exist."""
    wanted = set(subscription.partitions(stream.name, stream.partitions))
    extents = {
        each.partition: PartitionBounds(each.earliest, each.latest, each.behind)
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
