"""How far a query has read streams, as the offset that Spark keeps of it in the checkpoint.

For each stream it has the stream's identity, and for each partition the next offset to read.
Where a partition was read for the first time it also says where that began, and so it does
where something was lost in between: so a batch that is replayed has the same rows, whatever
``latest`` has become since. As JSON::

    {"version": 1, "streams": {"orders": {"id": "00c0ffee…", "next": {"0": 7}, "began": {"0": 3}}}}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from shmq.errors import ShmqError

__all__ = ["NOWHERE", "Progress", "StreamOffset"]

VERSION: Final = 1

_NONE: Final[Mapping[int, int]] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Of one stream: its identity, the next offset of each partition, and where it began."""

    identity: int
    next: Mapping[int, int]
    began: Mapping[int, int] = dataclasses.field(default_factory=lambda: _NONE)

    def as_json(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        numbers = {"id": f"{self.identity:016x}", "next": _as_json(self.next)}
        return {**numbers, "began": _as_json(self.began)} if self.began else numbers

    @classmethod
    def of_json(cls, given: Any) -> Self:
        """Raises ValueError and its like for what :meth:`as_json` cannot have made."""
        began = _of_json(given.get("began", {}))
        following = _of_json(given["next"])
        if not set(began) <= set(following):
            raise ValueError("something began that has no end")
        return cls(int(given["id"], 16), following, began)


@dataclasses.dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of a micro-batch, by stream."""

    streams: Mapping[str, Progress]

    def as_json(self) -> dict[str, Any]:
        """What Spark is given, always with the same keys in the same order."""
        streams = {name: self.streams[name].as_json() for name in sorted(self.streams)}
        return {"version": VERSION, "streams": streams}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Self:
        """What Spark gives back. Raises ShmqError for what is no offset of this source."""
        try:
            if given["version"] != VERSION:
                raise ValueError(f"version {given['version']!r}")
            streams = {name: Progress.of_json(each) for name, each in given["streams"].items()}
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ShmqError(
                f"the checkpoint has an offset that is not one of format('shmq') for streams, "
                f"version {VERSION}: {str(given)[:200]} ({error}); give the query a checkpoint of "
                f"its own"
            ) from None
        return cls(MappingProxyType(streams))

    def since(self, start: StreamOffset) -> Iterator[tuple[str, int, int, int, int]]:
        """What the batch from ``start`` to this has: stream, identity, partition, from, to.

        Only partitions with something in it. Raises ShmqError where it goes backwards.
        """
        for name, here in sorted(self.streams.items()):
            before = start.streams.get(name)
            for partition, end in sorted(here.next.items()):
                begin = here.began.get(partition)
                if begin is None and before is not None:
                    begin = before.next.get(partition)
                if begin is None or begin > end:
                    raise ShmqError(
                        f"the checkpoint says that partition {partition} of the stream {name!r} "
                        f"was read from {begin} to {end}: a batch before that is missing in it"
                    )
                if begin < end:
                    yield name, here.identity, partition, begin, end


#: Where every query begins: before its first batch.
NOWHERE: Final = StreamOffset(MappingProxyType({}))


def _as_json(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): numbers[partition] for partition in sorted(numbers)}


def _of_json(given: Mapping[str, Any]) -> Mapping[int, int]:
    numbers = {int(partition): number for partition, number in given.items()}
    for partition, number in numbers.items():
        if type(number) is not int or number < 0 or partition < 0:
            raise ValueError(f"offset {number!r} of partition {partition}")
    return MappingProxyType(numbers)
