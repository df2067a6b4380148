"""The sinks of a job: they take its rows batch by batch; a repeated batch adds nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from shmq.spark.jobs import values
from shmq.spark.jobs.config import Key
from shmq.spark.jobs.parquet_store import Compaction, ParquetStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FILES", "Files", "Queue", "Sink", "of"]

#: In how many folders a task has files open; up to that number Spark need not sort the rows.
_OPEN_FOLDERS: Final = "64"

#: The keys for files.
FILES: Final = (
    Key(
        name="compression",
        about="How files are compressed: zstd, snappy, gzip, lz4 or none.",
        check=values.one_of("zstd", "snappy", "gzip", "lz4", "none"),
        default="zstd",
    ),
    Key(
        name="merge_to",
        about="The size of merged files; 0: small files are not merged.",
        check=values.size(0, 1 << 40),
        default=128 << 20,
        example="128MiB",
    ),
    Key(
        name="merge_files",
        about="Small files of a folder are merged once there are this many.",
        check=values.whole(2, 100_000),
        default=16,
    ),
    Key(
        name="keep_merged",
        about="How long replaced files are kept for readers that still use them.",
        check=values.seconds(0, 30 * 86400),
        default=3600.0,
        example="1h",
    ),
)


class Sink(Protocol):
    """Takes batches."""

    def add(self, rows: DataFrame, query: str, batch: int) -> None:
        """Add the rows, unless that batch of the query, or a later one, was added already."""

    def rest(self) -> None:
        """Finish up after the last batch."""


class Files:
    """Parquet files; see :mod:`shmq.spark.jobs.parquet_store`."""

    def __init__(
        self, session: SparkSession, table: Mapping[str, Any], columns: tuple[str, ...]
    ) -> None:
        session.conf.set("spark.sql.maxConcurrentOutputFileWriters", _OPEN_FOLDERS)
        self._session = session
        self._table = table
        self._columns = columns
        self._opened: ParquetStore | None = None

    def add(self, rows: DataFrame, query: str, batch: int) -> None:
        """Add the rows as in :class:`Sink`, and merge small files of a folder."""
        store = self._store()
        store.add(rows, query, batch)
        store.merge()
        store.sweep()

    def rest(self) -> None:
        """Merge the remaining small files."""
        store = self._store()
        while store.merge():
            pass
        store.sweep()

    def _store(self) -> ParquetStore:
        """The store, opened with the first batch; opening undoes what a crash left unfinished."""
        if self._opened is None:
            table = self._table
            self._opened = ParquetStore(
                self._session,
                table["path"],
                columns=self._columns,
                compression=table["compression"],
                merging=Compaction(
                    size=table["merge_to"], files=table["merge_files"], keep=table["keep_merged"]
                ),
            )
        return self._opened


class Queue:
    """A queue, by the options of ``format("shmq")``."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        self._options = options
        self._name = name

    def add(self, rows: DataFrame, query: str, batch: int) -> None:
        """Add the rows as in :class:`Sink`."""
        writer = rows.write.format("shmq").mode("append").options(**self._options)
        writer.option("publisher", f"{query}/{self._name}").option("batch", batch).save()

    def rest(self) -> None:
        """Do nothing."""


def of(session: SparkSession, table: Mapping[str, Any], name: str) -> Sink:
    """The sink that a table of rows describes; the ``name`` is unique within the job."""
    if table["format"] == "parquet":
        return Files(session, table, table["partition_by"] or ())
    return Queue(table["options"], name)
