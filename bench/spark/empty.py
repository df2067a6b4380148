"""A Python data source and sink without a queue: they show Spark's own cost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from bench.spark import numbered
from bench.spark.figures import SIZE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Rows of a batch.
BATCH = 16_384


class EmptySource(DataSource):
    """``rows`` rows of the requested schema, in ``tasks`` parts; it drops what it is given."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(…)``."""
        return "bench-empty"

    def reader(self, schema: StructType) -> EmptyReader:
        """See Spark's ``DataSource``."""
        return EmptyReader(schema, int(self.options["rows"]), int(self.options["tasks"]))

    def writer(self, schema: StructType, overwrite: bool) -> EmptyWriter:
        """See Spark's ``DataSource``."""
        del schema, overwrite
        return EmptyWriter()


class EmptyWriter(DataSourceArrowWriter):
    """Counts the rows of each Arrow batch, and drops it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See Spark's ``DataSourceArrowWriter``."""
        self.rows = sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()


class EmptyReader(DataSourceReader):
    """One batch, made once and yielded until there are enough rows."""

    def __init__(self, schema: StructType, rows: int, tasks: int) -> None:
        self.schema = schema
        self.rows = rows
        self.tasks = tasks

    def partitions(self) -> list[InputPartition]:
        """See Spark's ``DataSourceReader``."""
        return [InputPartition(part) for part in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See Spark's ``DataSourceReader``."""
        left = len(range(partition.value, self.rows, self.tasks))
        batch = _batch(self.schema, min(left, BATCH))
        while left:
            part = batch.slice(0, min(left, BATCH))
            yield part
            left -= part.num_rows


def _batch(schema: StructType, rows: int) -> pa.RecordBatch:
    """Values of 100 B; with headers also keys, as a queue has them; else as of bare messages."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = to_arrow_schema(schema, timezone="UTC")
    adorned = {"key": _keys, "headers": _headers} if "headers" in fields.names else {}
    columns = [
        pa.array(
            adorned[field.name](rows) if field.name in adorned else [_cell(field)] * rows,
            field.type,
        )
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _keys(rows: int) -> list[bytes]:
    return [numbered.key(number).encode() for number in range(rows)]


def _headers(rows: int) -> list[Any]:
    made = (numbered.headers(number) for number in range(rows))
    return [
        [{"key": key, "value": _as_bytes(value)} for key, value in each.items()] for each in made
    ]


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


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
