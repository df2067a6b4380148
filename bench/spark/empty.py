"""A Python data source that yields ready Arrow batches: it shows Spark's own cost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.spark.figures import SIZE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Rows of a batch.
BATCH = 16_384
#: Parts of a read: one for each core.
PARTS = 2


class EmptySource(DataSource):
    """``rows`` rows of the requested schema."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(…)``."""
        return "bench-empty"

    def reader(self, schema: StructType) -> EmptyReader:
        """See Spark's ``DataSource``."""
        return EmptyReader(schema, int(self.options["rows"]))


class EmptyReader(DataSourceReader):
    """One batch, made once and yielded until there are enough rows."""

    def __init__(self, schema: StructType, rows: int) -> None:
        self.schema = schema
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        """See Spark's ``DataSourceReader``."""
        return [InputPartition(part) for part in range(PARTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See Spark's ``DataSourceReader``."""
        left = len(range(partition.value, self.rows, PARTS))
        batch = _batch(self.schema, min(left, BATCH))
        while left:
            part = batch.slice(0, min(left, BATCH))
            yield part
            left -= part.num_rows


def _batch(schema: StructType, rows: int) -> pa.RecordBatch:
    """Values of 100 B, with the other columns as those of a queue."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = to_arrow_schema(schema, timezone="UTC")
    columns = [pa.array([_cell(field)] * rows, type=field.type) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _cell(field: pa.Field) -> Any:
    import pyarrow as pa

    if field.name == "value":
        return bytes(SIZE)
    if field.name == "timestamp":
        return dt.datetime.now(dt.UTC)
    if field.nullable and (pa.types.is_timestamp(field.type) or field.name == "key"):
        return None
    if pa.types.is_string(field.type):
        return None if field.nullable else "q"
    return 0 if pa.types.is_integer(field.type) else None
