"""``format("shmq")``: what Spark asks of a format, handed on to what kind of thing is meant.

A kind is a class as :class:`~shmq.spark.queue.kind.QueueKind`, chosen in
:func:`~shmq.spark.format_dispatch.kind_of` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shmq.spark.format_dispatch import Kind

__all__ = ["ShmqSource"]


class ShmqSource(DataSource):
    """The format ``shmq``. Spark makes one for each DataFrame and each write, at the driver."""

    @classmethod
    def name(cls) -> str:
        """What ``format(…)`` is given."""
        return "shmq"

    def kind(self) -> Kind:
        """What its options speak of. Raises :class:`~shmq.ShmqError`."""
        from shmq.spark.format_dispatch import kind_of  # noqa: PLC0415 - Spark looks at each format

        return kind_of(self.options)

    def schema(self) -> str:
        """The columns, as DDL. Raises :class:`~shmq.InvalidOption`."""
        return self.kind().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """What ``spark.read`` reads with."""
        return self.kind().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """What ``spark.readStream`` reads with."""
        return self.kind().stream_reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What ``df.write`` writes with."""
        return self.kind().writer(schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """What ``df.writeStream`` writes with."""
        return self.kind().stream_writer(schema, overwrite=overwrite)
