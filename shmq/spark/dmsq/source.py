"""``format("dmsq")``: the files of durable queues, in a data directory or a backup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from shmq.spark.dmsq.options import OPTIONS, REFUSED, SKIPPED
from shmq.spark.shared import columns, options
from shmq.spark.shared.options import BATCH

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DmsqSource(DataSource):
    """The format ``dmsq``. Spark makes one per DataFrame, at the driver."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(…)``."""
        return "dmsq"

    def schema(self) -> str:
        """The columns, as DDL. Raises :class:`~shmq.InvalidOption`."""
        chosen = self._choose()
        if chosen["rows"] == "skipped":
            return SKIPPED
        return columns.ddl(columns.chosen(chosen))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for ``spark.read``. Raises :class:`~shmq.ShmqError`, at the driver."""
        from shmq.spark.dmsq.files import Files  # noqa: PLC0415 - Spark looks at each format
        from shmq.spark.dmsq.reader import DmsqReader, SkippedReader  # noqa: PLC0415

        chosen = self._choose()
        if chosen["rows"] == "skipped":
            return SkippedReader(Files(chosen))
        columns.check(schema)
        return DmsqReader(Files(chosen), schema, chosen)

    def _choose(self) -> dict[str, Any]:
        return options.parse(OPTIONS, self.options, BATCH, form="dmsq", refused=REFUSED)
