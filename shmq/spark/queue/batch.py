"""A batch read of queues: a peek, which leases nothing."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from shmq.api.columns import STATES
from shmq.spark.queue.source import Subscription
from shmq.spark.shared import columns
from shmq.spark.shared.address import Address

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["QueueReader", "SlotRange", "parts_of"]

#: About how many messages a part has at most, and at least.
_MOST: Final = 250_000
_LEAST: Final = 1_000


@dataclasses.dataclass(frozen=True)
class SlotRange(InputPartition):
    """Part of a queue: the messages in its slots from ``start`` to ``end``."""

    topic: str
    start: int
    end: int


class QueueReader(DataSourceReader):
    """Reads the messages that are in the queues when the query runs."""

    def __init__(
        self,
        address: Address,
        subscription: Subscription,
        schema: StructType,
        chosen: Mapping[str, Any],
    ) -> None:
        columns.check(schema)
        self._address = address
        self._subscription = subscription
        self._schema = schema
        self._least = chosen["minPartitions"]
        self._size = chosen["maxBytesPerBatch"]
        states = frozenset(map(STATES.index, chosen["states"]))
        self._states = states if len(states) < len(columns.STATES) else None

    def partitions(self) -> list[InputPartition]:
        """The parts of all queues. Raises ShmqError, at the driver."""
        parts: list[InputPartition] = []
        with self._address.connect() as broker:
            names = self._subscription.find(broker)
            least = math.ceil((self._least or 0) / max(len(names), 1))
            for name in names:
                with broker.queue(name) as queue:
                    slots = queue.bulk().slots()
                parts += (SlotRange(name, *each) for each in parts_of(slots, least))
        return parts or [SlotRange("", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as Arrow batches."""
        assert isinstance(partition, SlotRange)
        if not partition.end:
            return
        from shmq.spark.shared.message_arrow import Batches  # noqa: PLC0415 - the planner has no use for Arrow

        batches = Batches.for_spark(self._schema, partition.topic)
        with self._address.connect() as broker, broker.queue(partition.topic) as queue:
            bulk = queue.bulk()
            at: int | None = partition.start
            while at is not None:
                run, at = bulk.read_columns(at, end=partition.end, max_bytes=self._size)
                batch = batches.batch(run, self._states)
                if batch.num_rows:
                    yield batch


def parts_of(count: int, least: int) -> list[tuple[int, int]]:
    """Divide ``count`` into ranges of about equal size, at least ``least`` of them if it is set.

    Otherwise there is one range for each core of this machine, fewer if they would be very
    small, and more if they would be very large.
    """
    wanted = least or max(
        math.ceil(count / _MOST), min(os.cpu_count() or 1, math.ceil(count / _LEAST))
    )
    parts = max(1, min(wanted, count))
    ends = [count * n // parts for n in range(parts + 1)]
    return list(itertools.pairwise(ends)) if count else []
