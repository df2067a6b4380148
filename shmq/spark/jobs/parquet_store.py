"""Parquet files to which a stream adds each batch once, and that are merged while being read.

Spark writes a batch to a temporary folder, with its own protocol for failed tasks. Then the
files are moved to their places, and one version of the :mod:`~shmq.spark.jobs.file_sink_log`
makes them valid and names their batch, so that a repeated batch is recognized. Small files are
merged in the same way: the large file is made in the temporary folder, and one version puts it
in their place. The small files are removed later, because readers may still use them.

Before files are moved or replaced, a list of them is written. The listed files that are not in
the log are removed: after a crash, and once the readers' time is over.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from shmq.spark.jobs.file_sink_log import FileSinkLog
from shmq.spark.jobs.filesystem import File, Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Compaction", "ParquetStore"]

#: The temporary folder for new files, with the lists of the files that are being moved.
_ASIDE: Final = "_writing"
_LIST: Final = ".list"
#: The folder of the lists of replaced files, named by the time in milliseconds since 1970.
_REPLACED: Final = "_replaced"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """When small files are merged into a large one.

    Files are merged with others of the same order of size. So each byte is written once per
    order, however many batches there are.
    """

    #: The target size in bytes; a file of half that size is not small. 0: never merge.
    size: int = 128 << 20
    #: How many small files of one order a folder may have, and the ratio of two orders: 2 or
    #: more.
    files: int = 16
    #: How long replaced files are kept for readers, in seconds.
    keep: float = 3600.0


class ParquetStore:
    """A folder of Parquet files, partitioned by columns. Only one process may write to it."""

    def __init__(
        self,
        session: SparkSession,
        path: str,
        *,
        columns: tuple[str, ...] = (),
        compression: str = "zstd",
        merging: Compaction = Compaction(),
    ) -> None:
        self._session = session
        self._columns = columns
        self._compression = compression
        self._merging = merging
        self._folder = Folder(session, path)
        self._file_sink_log = FileSinkLog(self._folder)
        self._recover()

    def add(self, rows: DataFrame, query: str, batch: int) -> None:
        """Add the rows, unless that batch of the query, or a later one, was added already."""
        if self._file_sink_log.batches.get(query, -1) >= batch:
            return
        name = f"{query}-{batch}"
        found = self._made(rows, name, self._columns)
        moves = {
            source: f"{_parent(source)}part-{query[:8]}-{batch:08d}-{number:04d}.{self._suffix}"
            for number, source in enumerate(sorted(found))
        }
        self._publish(name, moves, (), (query, batch))

    def merge(self) -> bool:
        """Merge files of the folder with most small files; False if no folder has too many."""
        chosen = self._chosen()
        if not chosen:
            return False
        name = uuid.uuid4().hex
        reader = self._session.read.option("mergeSchema", "true")
        parts = reader.parquet(*(self._folder.path(each) for each in chosen))
        found = self._made(parts.coalesce(1), name, ())
        self._write_list(f"{_REPLACED}/{round(time.time() * 1000)}-{name}{_LIST}", chosen)
        folder = _parent(chosen[0])
        moves = {
            source: f"{folder}merged-{name}-{number:04d}.{self._suffix}"
            for number, source in enumerate(sorted(found))
        }
        self._publish(name, moves, chosen, None)
        return True

    def sweep(self) -> None:
        """Remove replaced files whose time for readers is over."""
        oldest = (time.time() - self._merging.keep) * 1000
        for name in self._folder.names(_REPLACED):
            if name.endswith(_LIST) and int(name.partition("-")[0]) <= oldest:
                self._remove_listed(f"{_REPLACED}/{name}")

    @property
    def _suffix(self) -> str:
        return f"{self._compression}.parquet"

    def _made(self, rows: DataFrame, name: str, columns: tuple[str, ...]) -> dict[str, File]:
        """Write the rows to the temporary folder; the files by their names there."""
        aside = f"{_ASIDE}/{name}"
        writer = rows.write.mode("overwrite").option("compression", self._compression)
        if columns:
            writer = writer.partitionBy(*columns)
        writer.parquet(self._folder.path(aside))
        return {file: found for file, found in self._folder.files(aside).items() if found.size}

    def _publish(
        self,
        name: str,
        moves: dict[str, str],
        replaced: Iterable[str],
        batch: tuple[str, int] | None,
    ) -> None:
        """Move the new files to their places, and add them to the log."""
        listed = f"{_ASIDE}/{name}{_LIST}"
        if moves:
            self._write_list(listed, moves.values())
            added = {
                to: self._folder.move(f"{_ASIDE}/{name}/{source}", to)
                for source, to in moves.items()
            }
            self._file_sink_log.commit(added, remove=replaced, batch=batch)
        self._folder.remove(f"{_ASIDE}/{name}")
        self._folder.remove(listed)

    def _chosen(self) -> list[str]:
        """The files to merge: of one folder, and no more than make up a large file."""
        merging = self._merging
        alike: dict[tuple[str, int], list[str]] = collections.defaultdict(list)
        for name, file in self._file_sink_log.files.items():
            if file.size < merging.size // 2:
                order = int(math.log(max(file.size, 1), merging.files))
                alike[_parent(name), order].append(name)
        most = max(alike.values(), key=len, default=[])
        if len(most) < merging.files:
            return []
        sized = sorted(most, key=lambda name: self._file_sink_log.files[name].size)
        return list(_up_to(sized, self._file_sink_log.files, merging.size))

    def _recover(self) -> None:
        """Undo what a crash left unfinished."""
        names = self._folder.names(_ASIDE)
        for name in names:
            if name.endswith(_LIST):
                self._remove_listed(f"{_ASIDE}/{name}")
        for name in names:
            if not name.endswith(_LIST):
                self._folder.remove(f"{_ASIDE}/{name}")

    def _write_list(self, name: str, files: Iterable[str]) -> None:
        self._folder.write_json(name, list(files))

    def _remove_listed(self, name: str) -> None:
        """Remove the files of a list that are not in the log, and then the list."""
        for file in self._folder.read_json(name):
            if file not in self._file_sink_log.files:
                self._folder.remove(file)
        self._folder.remove(name)


def _up_to(names: Iterable[str], files: dict[str, Any], size: int) -> Iterator[str]:
    total = 0
    for at, name in enumerate(names):
        total += files[name].size
        if at > 1 and total > size:
            return
        yield name


def _parent(name: str) -> str:
    """The folder of the name, with a trailing slash; empty for the top."""
    return name[: name.rfind("/") + 1]
