"""How far a query has read its streams, as the offset that Spark keeps in the checkpoint.

For each stream it has the stream's identity and the next offset of each partition. If the batch
reads a partition for the first time, or after lost records, it also has the offset at which the
batch began. So a replayed batch has the same rows, whatever ``latest`` is by then. As JSON::

    {"version": 1, "streams": {"orders": {"id": "00c0ffee…", "next": {"0": 7}, "began": {"0": 3}}}}

With the option ``groupIdPrefix`` the key ``group`` has the name of the query's consumer group. If
a batch could not have all waiting records, ``turn`` is the partition after which the next batch
continues to give out the records that remain (:func:`shmq.spark.shared.shares.divide`). ``tasks``
is the option ``minPartitions`` with which the batch was planned: a replay has as many tasks, as a
sink may know a task's rows by the task's number.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from shmq.api.names import check_name
from shmq.errors import InvalidName, OffsetOutOfRange, ShmqError

_log = logging.getLogger("shmq.spark")

VERSION: Final = 1

Json = dict[str, Any]

#: A partition of a stream.
Place = tuple[str, int]

_NONE: Final[Mapping[int, int]] = MappingProxyType({})

#: The advice in an error about lost records.
HOW: Final = "with failOnDataLoss=false it goes on without them"


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Progress in one stream: its identity, each partition's next offset, and where it began."""

    identity: int
    next: Mapping[int, int]
    began: Mapping[int, int] = dataclasses.field(default_factory=lambda: _NONE)

    def as_json(self) -> dict[str, Any]:
        """The JSON that the checkpoint keeps."""
        numbers = {"id": f"{self.identity:016x}", "next": _as_json(self.next)}
        return {**numbers, "began": _as_json(self.began)} if self.began else numbers

    @classmethod
    def of_json(cls, given: Any) -> Self:
        """The inverse of :meth:`as_json`. Raises ValueError and its like for other JSON."""
        began = _parse_json(given.get("began", {}))
        following = _parse_json(given["next"])
        if not set(began) <= set(following):
            raise ValueError("something began that has no end")
        return cls(int(given["id"], 16), following, began)


@dataclasses.dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of a micro-batch, by stream."""

    streams: Mapping[str, Progress]
    #: The consumer group that was made up for the query; None: none was.
    group: str | None = None
    #: The partition that got the last remaining record of a batch; None: nothing remained.
    turn: Place | None = None
    #: The least number of tasks that read the batch; None: each partition is one task's.
    tasks: int | None = None
    #: Whether a batch ends here, even if there was no stream yet; only `NOWHERE` is before all.
    started: bool = True

    def as_json(self) -> dict[str, Any]:
        """The JSON for Spark, always with the same keys in the same order."""
        streams = {name: self.streams[name].as_json() for name in sorted(self.streams)}
        found: Json = {"version": VERSION, "streams": streams if self.started else None}
        if self.group is not None:
            found["group"] = self.group
        if self.turn is not None:
            found["turn"] = list(self.turn)
        if self.tasks is not None:
            found["tasks"] = self.tasks
        return found

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Self:
        """The offset in Spark's JSON. Raises ShmqError for JSON that is not of this source."""
        try:
            if given["version"] != VERSION:
                raise ValueError(f"version {given['version']!r}")
            started = given["streams"] is not None
            each_stream = given["streams"].items() if started else ()
            streams = {name: Progress.of_json(each) for name, each in each_stream}
            turn = None if given.get("turn") is None else _place_of(*given["turn"])
            group, tasks = given.get("group"), given.get("tasks")
            if tasks is not None and (type(tasks) is not int or tasks < 1):
                raise ValueError(f"{tasks!r} tasks")
            if group is not None:
                check_name(group)
        except (LookupError, TypeError, ValueError, AttributeError, InvalidName) as error:
            raise ShmqError(
                f"the checkpoint has an offset that is not one of format('shmq') for streams, "
                f"version {VERSION}: {str(given)[:200]} ({error}); give the query a checkpoint of "
                f"its own"
            ) from None
        return cls(MappingProxyType(streams), group, turn, tasks, started)

    def since(self, start: StreamOffset) -> Iterator[tuple[str, int, int, int, int]]:
        """The ranges of the batch from ``start``: stream, identity, partition, from, to.

        Empty ranges are left out. Raises ShmqError for a range that goes backwards.
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


#: Where every query begins: before its first batch. Spark never stores it.
NOWHERE: Final = StreamOffset(MappingProxyType({}), started=False)


def _place_of(name: Any, partition: Any) -> Place:
    if type(name) is not str or type(partition) is not int:
        raise ValueError(f"turn [{name!r}, {partition!r}]")
    return name, partition


def _as_json(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): numbers[partition] for partition in sorted(numbers)}


def _parse_json(given: Mapping[str, Any]) -> Mapping[int, int]:
    numbers = {int(partition): number for partition, number in given.items()}
    for partition, number in numbers.items():
        if type(number) is not int or number < 0 or partition < 0:
            raise ValueError(f"offset {number!r} of partition {partition}")
    return MappingProxyType(numbers)


def pass_over(
    topic: str, partition: int, start: int, found: int, there: tuple[int, int], *, strict: bool
) -> None:
    """Log that a read begins at ``found`` instead of ``start``, because what is between is gone.

    ``there`` are the earliest and the latest offset. If ``strict``, raises OffsetOutOfRange.
    """
    first, end = sorted((start, found))
    earliest, latest = there
    message = (
        f"{end - first:,} records that were to be read of the stream {topic!r}, partition "
        f"{partition}, offsets {first} to {end - 1}, are gone: there are {earliest} to "
        f"{latest - 1} now"
    )
    if strict:
        raise OffsetOutOfRange(f"{message}; {HOW}", start, earliest, latest) from None
    _log.warning("%s; the query goes on at %d", message, found)
