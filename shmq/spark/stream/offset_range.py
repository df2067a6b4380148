"""A range of offsets of one partition. One task reads it, in order, each record once."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

import shmq
from shmq.errors import NoSuchStream, OffsetOutOfRange, StreamDeleted
from shmq.spark.shared.address import Address

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["Range", "cut", "read"]

_log = logging.getLogger("shmq.spark")

#: The advice in an error about lost records.
HOW: Final = "with failOnDataLoss=false it goes on without them"


@dataclasses.dataclass(frozen=True)
class Range(InputPartition):
    """The records from ``start`` to before ``end``."""

    topic: str
    #: The stream's identity when the read was planned.
    identity: int
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def cut(ranges: Iterable[Range], least: int | None) -> list[Range]:
    """The ranges cut into ``least`` or more parts, longer ones into more; without it, uncut.

    Several tasks read the parts of a range at once, so there is no order between the parts.
    """
    given = [each for each in ranges if len(each)]
    if least is None or least <= len(given):
        return given
    total = sum(map(len, given))
    return [part for each in given for part in _parts(each, -(-least * len(each) // total))]


def _parts(whole: Range, count: int) -> Iterator[Range]:
    count = min(count, len(whole))
    ends = [whole.start + len(whole) * n // count for n in range(count + 1)]
    for start, end in itertools.pairwise(ends):
        yield dataclasses.replace(whole, start=start, end=end)


def read(
    address: Address, wanted: Range, schema: StructType, size: int, *, strict: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a range in Arrow batches of about ``size`` bytes.

    Raises :class:`~shmq.ShmqError` for lost records if ``strict``; otherwise it leaves them out
    and logs how many they were.
    """
    from shmq.spark.stream.arrow import Batches  # noqa: PLC0415 - the driver has no use for Arrow

    batches = Batches.for_spark(schema, wanted.topic, wanted.partition)
    at = wanted.start
    try:
        with address.connect() as broker, broker.stream(wanted.topic) as stream:
            check_identity(stream, wanted)
            while at < wanted.end:
                try:
                    found = stream.read(wanted.partition, at, wanted.end - at, max_bytes=size)
                except OffsetOutOfRange as error:
                    at = _behind(wanted, at, error, strict=strict)
                    continue
                yield from batches.of_block(found.data, at, wanted.end)
                at = min(found.next_offset, wanted.end)
    except (NoSuchStream, StreamDeleted) as error:
        if strict:
            raise
        _log.warning("%d records of a batch are lost: %s", wanted.end - at, error)


def check_identity(stream: shmq.Stream, wanted: Range) -> None:
    """Raise StreamDeleted unless the stream is the one that was planned."""
    if stream.identity != wanted.identity:
        raise StreamDeleted(
            f"the stream {wanted.topic!r} was deleted and made anew while records of it were to be "
            f"read"
        )


def _behind(wanted: Range, at: int, error: OffsetOutOfRange, *, strict: bool) -> int:
    """Where to continue after lost records. Raises OffsetOutOfRange if ``strict``."""
    following = min(max(error.earliest, at), wanted.end)
    if error.earliest <= at:  # not written yet, so the range was never a planned one
        following = wanted.end
    told = lost(wanted.topic, wanted.partition, at, following)
    if strict:
        raise OffsetOutOfRange(
            f"{told}: there are {error.earliest} to {error.latest - 1} now; {HOW}",
            at,
            error.earliest,
            error.latest,
        ) from None
    _log.warning("%s: the query goes on without them", told)
    return following


def lost(topic: str, partition: int, start: int, end: int) -> str:
    """The text about lost records."""
    return (
        f"{end - start:,} records that were to be read of the stream {topic!r}, partition "
        f"{partition}, offsets {start} to {end - 1}, are gone"
    )
