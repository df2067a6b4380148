"""Records of a partition as Arrow batches, with the columns of a schema, in its order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from shmq.codec.codecs import CODECS, unpack_properties
from shmq.errors import ShmqError
from shmq.native import _arrow
from shmq.spark.shared import arrow
from shmq.spark.shared.arrow import header_value

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Batches"]

#: How many distinct unpacked header maps are cached.
_ALIKE: Final = 4096

Pairs = list[dict[str, Any]] | None


class Batches:
    """Makes the batches of one partition."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._topic = topic.encode()
        self._partition = partition

    @classmethod
    def for_spark(cls, schema: StructType, topic: str, partition: int) -> Self:
        """Batches with exactly the Arrow schema that Spark derives from its own schema."""
        return cls(to_arrow_schema(schema, timezone="UTC"), topic, partition)

    def of_block(self, block: bytes, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records of a block of entries, from the offset ``start`` to before ``end``."""
        columns = _arrow.columns_of(block, start, end)
        assert columns is not None, "what was read is expanded"
        made = _Making(columns, self._topic, self._partition)
        if made.count:
            arrays = [_MAKERS[field.name](made, field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Making:
    """One batch in the making: the data that its columns share."""

    def __init__(self, columns: _arrow.RecordColumns, topic: bytes, partition: int) -> None:
        self.columns = columns
        self.count = columns.count
        self.topic = topic
        self.partition = partition

    def values(self, kind: pa.DataType) -> pa.Array:
        return self._texts(kind, self.columns.value_ends, self.columns.values, None)

    def keys(self, kind: pa.DataType) -> pa.Array:
        columns = self.columns
        if columns.has_key is None:
            return pa.nulls(self.count, kind)
        return self._texts(kind, columns.key_ends, columns.keys, columns.has_key)

    def partitions(self, kind: pa.DataType) -> pa.Array:
        return arrow.plain(np.full(self.count, self.partition, np.int32), self.count, kind)

    def types(self, kind: pa.DataType) -> pa.Array:
        return arrow.plain(bytes(4 * self.count), self.count, kind)

    def headers(self, kind: pa.DataType) -> pa.Array:
        """The headers of each record; equal maps are unpacked once."""
        if not self.columns.headers:
            return pa.nulls(self.count, kind)
        ends = np.frombuffer(self.columns.header_ends, np.int32).tolist()
        known: dict[bytes, Pairs] = {b"": None}
        found = []
        for at, (start, end) in enumerate(itertools.pairwise(ends)):
            packed = self.columns.headers[start:end]
            if packed not in known:
                if len(known) >= _ALIKE:
                    known = {b"": None}
                known[packed] = self._pairs(packed, at)
            found.append(known[packed])
        return pa.array(found, kind)

    def _pairs(self, packed: bytes, at: int) -> Pairs:
        """The headers of the record in that row. Raises ShmqError if they are damaged."""
        try:
            headers = unpack_properties(packed)
        except Exception as error:  # msgpack's own errors, and unhashable keys
            offset = np.frombuffer(self.columns.offsets, np.int64)[at]
            raise ShmqError(
                f"the headers of the record at offset {offset} of partition {self.partition} of "
                f"stream {self.topic.decode()!r} are damaged: {error!r:.80}; read it without the "
                f"column 'headers', or from behind it"
            ) from error
        return [{"key": str(key), "value": header_value(value)} for key, value in headers.items()]

    def _texts(self, kind: pa.DataType, ends: bytes, data: bytes, there: bytes | None) -> pa.Array:
        bits = None if there is None else pa.py_buffer(there)
        parts = [bits, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, self.count, parts)


_CODECS: Final[Mapping[int, str | None]] = MappingProxyType(dict(enumerate(CODECS)))

_Maker = Callable[[_Making, pa.DataType], pa.Array]

#: The function that makes each column of a stream's rows.
_MAKERS: Final[Mapping[str, _Maker]] = MappingProxyType(
    {
        "key": _Making.keys,
        "value": _Making.values,
        "topic": lambda m, kind: arrow.constant(m.topic, m.count, kind),
        "partition": _Making.partitions,
        "offset": lambda m, kind: arrow.plain(m.columns.offsets, m.count, kind),
        "timestamp": lambda m, kind: arrow.plain(m.columns.timestamps, m.count, kind),
        "timestampType": _Making.types,
        "headers": _Making.headers,
        "codec": lambda m, kind: arrow.words(
            np.frombuffer(m.columns.codecs, np.uint8), _CODECS, kind
        ),
    }
)
