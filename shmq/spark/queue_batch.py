"""A batch read of queues: a peek, which takes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from shmq.spark.address import Address
from shmq.spark.queue_source import Subscription

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["QueueReader"]


class QueueReader(DataSourceReader):
    """Reads what is in the queues when the query runs."""

    def __init__(
        self,
        address: Address,
        subscription: Subscription,
        schema: StructType,
        chosen: Mapping[str, Any],
    ) -> None:
        self._address = address
        self._subscription = subscription
        self._schema = schema
        self._chosen = chosen

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as Arrow's batches."""
        del partition
        yield from ()
