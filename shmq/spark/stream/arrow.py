"""Records of a partition as Arrow batches."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pyarrow as pa

from shmq.native import _arrow
from shmq.spark.shared.arrow import CODEC_WORDS, Rows


class RecordRows(Rows):
    """Records of a block of entries, from the offset ``start`` to before ``end``."""

    def __init__(self, block: bytes, start: int, end: int, topic: str, partition: int) -> None:
        columns = _arrow.columns_of(block, start, end)
        assert columns is not None, "what was read is expanded"
        super().__init__(columns.count, topic)
        self.columns = columns
        self.partition = partition

    def named(self, row: int) -> str:
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
