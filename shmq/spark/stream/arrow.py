"""Records of a partition as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from shmq.native import _arrow
from shmq.spark.shared.arrow import CODEC_WORDS, Rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Batches", "RecordRows"]


class RecordRows(Rows):
    """Records of a block of entries, from the offset ``start`` to before ``end``."""

    def __init__(self, block: bytes, start: int, end: int, topic: str, partition: int) -> None:
        columns = _arrow.columns_of(block, start, end)
        assert columns is not None, "what was read is expanded"
        super().__init__(columns.count, topic)
        self.columns = columns
        self.partition = partition

    def named(self, row: int) -> str:
        """See :class:`~shmq.spark.shared.arrow.Rows`."""
        offset = np.frombuffer(self.columns.offsets, np.int64)[row]
        return (
            f"the record at offset {offset} of partition {self.partition} of stream {self.topic!r}"
        )

    def keys(self, kind: pa.DataType) -> pa.Array:
        """The key of each record; null if it has none."""
        there, ends, keys = self.columns.has_key, self.columns.key_ends, self.columns.keys
        return self.texts(None if there is None else (there, ends, keys), kind)

    def values(self, kind: pa.DataType) -> pa.Array:
        """The value of each record."""
        return self.texts((None, self.columns.value_ends, self.columns.values), kind)

    def headers(self, kind: pa.DataType) -> pa.Array:
        """The headers of each record; null if it has none."""
        return self.headers_of(self.columns.header_ends, self.columns.headers, None, kind)

    MAKERS = MappingProxyType(
        {
            "key": keys,
            "value": values,
            "topic": Rows.topics,
            "partition": lambda m, kind: m.constant(m.partition, kind),
            "offset": lambda m, kind: m.plain(m.columns.offsets, kind),
            "timestamp": lambda m, kind: m.plain(m.columns.timestamps, kind),
            "timestampType": lambda m, kind: m.constant(0, kind),
            "headers": headers,
            "codec": lambda m, kind: m.words(
                np.frombuffer(m.columns.codecs, np.uint8), CODEC_WORDS, kind
            ),
        }
    )


class Batches:
    """Makes the batches of one partition, in the columns of a schema and in their order."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._topic = topic
        self._partition = partition

    @classmethod
    def for_spark(cls, schema: StructType, topic: str, partition: int) -> Self:
        """Batches with exactly the Arrow schema that Spark derives from its own schema."""
        return cls(to_arrow_schema(schema, timezone="UTC"), topic, partition)

    def of_block(self, block: bytes, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records of a block of entries, from the offset ``start`` to before ``end``."""
        rows = RecordRows(block, start, end, self._topic, self._partition)
        if rows.count:
            yield rows.batch(self._schema)
