"""A table of files that any reader reads with each row once: folders of batches, in versions.

    archive/
      _current.json                      {"path": "v=1", "merged": {QUERY: 41}}
      v=1/
        shmq_batch=merged/topic=…/part-….parquet
        shmq_batch=000000000042-QUERY/topic=…/part-….parquet
      _staging/                          what is being written

Spark writes a batch into ``_staging``, whatever its tasks leave there, and one rename moves the
folder into the version: a batch is there whole or not at all, and one that is there is not
written again. A compaction writes the next version beside the current one, and one rename of
``_current.json`` makes it current; who reads the old version goes on.

A batch and a compaction need no lock. A batch that was moved into a version looks whether that
version is still current, and else is added to the new one; a compaction that has replaced
``_current.json`` looks for batches that came into the old version meanwhile, and copies them.
Whichever looks last finds what the other did. If the compaction is killed before it has looked,
the next process that opens the table does it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import DamagedFile, InvalidOption, ShmqError
from shmq.spark.jobs.filesystem import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BATCH", "FileTable", "Version", "current_path", "setting"]

#: The column that each row has of its folder, once it is read.
BATCH: Final = "shmq_batch"

_CURRENT: Final = "_current.json"
_STAGING: Final = "_staging"
_MERGED: Final = "merged"
#: What stands in the names of files of a format, where it is not the name of the format.
_ENDINGS: Final = {"text": "txt"}
_VERSION: Final = re.compile(r"v=(\d{1,18})")
_PLACE: Final = re.compile(rf"{BATCH}=(\d{{12,18}})-(.+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """A version of the table."""

    number: int = 0
    #: The last batch of each query that was merged into it.
    merged: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def path(self) -> str:
        """Its folder in the table."""
        return f"v={self.number}"


class FileTable:
    """A table of files in one format. Raises what Spark and Hadoop raise."""

    def __init__(
        self,
        session: SparkSession,
        path: str,
        form: str,
        options: Mapping[str, str],
    ) -> None:
        self._folder = Folder(session, path)
        self._format = form
        self._options = options
        self._opened: set[str] = set()

    def add(self, rows: DataFrame, query: str, batch: int, columns: Sequence[str]) -> None:
        """Add the rows of a batch in folders by ``columns``, unless it is there already.

        Raises :class:`~shmq.InvalidOption` if the table has folders by other columns, or files of
        another format.
        """
        if self._open(query):
            self._check_layout(columns)
        place = f"{BATCH}={batch:012d}-{query}"
        while True:
            version = self.current()
            there = f"{version.path}/{place}"
            if version.merged.get(query, -1) >= batch or self._folder.exists(there):
                return
            staged = _staged(query)
            self._write(rows, staged, columns)
            empty = not self._folder.files(staged)
            moved = not empty and self._folder.move(staged, there)
            if not moved:
                self._folder.remove(staged)
            if self.current() == version:
                if not (empty or moved or self._folder.exists(there)):
                    raise self._missing(version)
                return

    def current(self) -> Version:
        """The version that readers are to read; the table is made if it does not exist.

        Raises :class:`~shmq.DamagedFile`.
        """
        if not self._folder.exists(_CURRENT):
            self._folder.make(Version().path)
            self._folder.write_json(_CURRENT, {"path": Version().path, "merged": {}})
        try:
            found = self._folder.read_json(_CURRENT)
            number, merged = _VERSION.fullmatch(found["path"]), found["merged"]
            plain = number is not None and all(type(each) is int for each in merged.values())
        except (DamagedFile, LookupError, TypeError, AttributeError):
            number, plain = None, False
        if number is None or not plain:
            raise DamagedFile(self._folder.path(_CURRENT), 0, "it names no version of the table")
        return Version(int(number[1]), dict(merged))

    def compact(self, session: SparkSession) -> int:
        """Write the current version's rows into fewer files as the next version; how many rows.

        There are none to merge in fewer than two batches. Spark's settings say how large a file
        gets. Raises :class:`~shmq.ShmqError` if there is no table, and if another process compacts
        it meanwhile.
        """
        from pyspark.sql import Observation  # noqa: PLC0415 - heavy, and an extra
        from pyspark.sql import functions as f  # noqa: PLC0415

        if not self._folder.exists(_CURRENT):
            raise ShmqError(
                f"{self._folder.uri} is no table of a job, as it has no {_CURRENT}: name the path "
                f"of the job's sink"
            )
        self._open(_MERGED)
        old = self.current()
        batches = self._batches(old)
        if len(batches) < 2:
            return 0
        seen = Observation()
        rows, columns = self._rows(session, old, batches)
        rows = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
        staged = _staged(_MERGED)
        self._write(rows.hint("rebalance", *columns), f"{staged}/{BATCH}={_MERGED}", columns)
        self._publish(staged, old, batches)
        return int(seen.get["rows"])

    def _publish(self, staged: str, old: Version, batches: Sequence[str]) -> None:
        merged = dict(old.merged)
        for found in filter(None, map(_PLACE.fullmatch, batches)):
            merged[found[2]] = max(merged.get(found[2], -1), int(found[1]))
        # Not the number of one that another compaction made, or left before it was current.
        new = Version(max(self._versions()) + 1, merged)
        self._adopt(old, staged, merged)
        if self.current() != old or not self._folder.move(staged, new.path):
            self._folder.remove(staged)
            raise ShmqError(
                f"{self._folder.uri} was compacted by another process meanwhile: nothing is lost, "
                f"and nothing is left to do"
            )
        self._folder.write_json(_CURRENT, {"path": new.path, "merged": merged})
        self._adopt_all(new)
        for number in self._versions():
            if number < old.number:
                self._folder.remove(Version(number).path)

    def _versions(self) -> list[int]:
        """The numbers of all versions that there are."""
        found = map(_VERSION.fullmatch, self._folder.names(""))
        return [int(each[1]) for each in found if each is not None]

    def _adopt_all(self, version: Version) -> None:
        """Copy the batches that other versions have and the current one has not.

        A batch, or a compaction, may have looked for the current version before that was made.
        """
        for number in self._versions():
            if number != version.number:
                self._adopt(Version(number), version.path, version.merged)

    def _adopt(self, old: Version, folder: str, merged: Mapping[str, int]) -> None:
        """Copy the batches of the old version that the folder, with what is merged, has not."""
        for name in self._batches(old):
            found = _PLACE.fullmatch(name)
            if found is None or merged.get(found[2], -1) >= int(found[1]):
                continue
            if not self._folder.exists(f"{folder}/{name}"):
                staged = _staged(_MERGED)
                self._folder.copy(f"{old.path}/{name}", staged)
                if not self._folder.move(staged, f"{folder}/{name}"):
                    self._folder.remove(staged)

    def _batches(self, version: Version) -> list[str]:
        names = self._folder.names(version.path)
        return [name for name in names if name.startswith(f"{BATCH}=")]

    def _rows(
        self, session: SparkSession, version: Version, batches: Sequence[str]
    ) -> tuple[DataFrame, list[str]]:
        """The rows of the batches, and the columns that make their folders, as text."""
        columns = self._columns(version, batches[0])
        typed = "spark.sql.sources.partitionColumnTypeInference.enabled"
        with setting(session, typed, "false"):
            reader = session.read.format(self._format).options(**self._options)
            reader = reader.option("mergeSchema", "true").option(
                "basePath", self._folder.path(version.path)
            )
            rows = reader.load([self._folder.path(f"{version.path}/{name}") for name in batches])
        return rows, columns

    def _write(self, rows: DataFrame, name: str, columns: Sequence[str]) -> None:
        writer: Any = (
            rows.drop(BATCH).write.format(self._format).mode("overwrite").options(**self._options)
        )
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        if columns:
            writer = writer.partitionBy(*columns)
        writer.save(self._folder.path(name))

    def _open(self, owner: str) -> bool:
        """Once, finish or remove what an earlier process left unfinished; whether it was now."""
        if owner in self._opened:
            return False
        self._opened.add(owner)
        for name in self._folder.names(_STAGING):
            if name.startswith(f"{owner}."):
                self._folder.remove(f"{_STAGING}/{name}")
        version = self.current()
        if not self._folder.exists(version.path):
            raise self._missing(version)
        self._adopt_all(version)
        return True

    def _check_layout(self, columns: Sequence[str]) -> None:
        """Raise InvalidOption for other columns than those of the table.

        Readers take what is in folders by several sets of columns for a mistake.
        """
        version = self.current()
        batches = self._batches(version)
        there = self._columns(version, batches[0]) if batches else [*columns]
        if there != [*columns]:
            raise InvalidOption(
                f"partition_by={[*columns]} does not go with the table {self._folder.uri}, which "
                f"has folders by {there}: set partition_by to that, or name another path"
            )

    def _columns(self, version: Version, batch: str) -> list[str]:
        """The columns that make the folders of a batch.

        Raises :class:`~shmq.InvalidOption` if its files are of another format: Spark would make
        rows of their bytes.
        """
        *folders, file = self._folder.files(f"{version.path}/{batch}")[0].split("/")
        if _ENDINGS.get(self._format, self._format) not in file.split("."):
            raise InvalidOption(
                f"format={self._format!r} does not go with the table {self._folder.uri}, which has "
                f"files as {file}: set format to theirs, or name another path"
            )
        return [part.partition("=")[0] for part in folders]

    def _missing(self, version: Version) -> DamagedFile:
        return DamagedFile(
            self._folder.path(_CURRENT), 0, f"it names {version.path}, which is not there"
        )


def current_path(session: SparkSession, path: str) -> str:
    """The folder of the current version of a table of files; the path itself if it is none."""
    folder = Folder(session, path)
    if not folder.exists(_CURRENT):
        return path
    return folder.path(FileTable(session, path, "", {}).current().path)


@contextlib.contextmanager
def setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    """The setting has that value in the block."""
    before = session.conf.get(name) or ""
    session.conf.set(name, value)
    try:
        yield
    finally:
        session.conf.set(name, before)


def _staged(owner: str) -> str:
    """A new folder for what the owner writes: a query, or a compaction."""
    return f"{_STAGING}/{owner}.{secrets.token_hex(8)}"
