"""A table of files that any reader reads with each row once: folders of batches, in versions.

    archive/
      _current.json                      {"path": "v=1", "merged": {QUERY: 41}}
      v=1/
        shmq_batch=merged/topic=…/part-….parquet
        shmq_batch=000000000042-QUERY/topic=…/part-….parquet
      _staging/                          what is being written

A new table has one file without rows, ``v=0/shmq_batch=empty/…``: readers find its columns there.

Spark writes a batch into ``_staging``, whatever its tasks leave there, and one rename moves the
folder into the version: a batch is there whole or not at all, and one that is there is not
written again. A compaction writes the next version beside the current one, and one rename of
``_current.json`` makes it current; readers of the old version go on.

No row that a reader has found is missing from a later read, so a version must have every batch of
the one before it when it becomes current. A writer and a compaction ensure that without a lock:

- A writer marks its staged batch as ready (a rename to ``….ready``), reads ``_current.json``, adds
  a copy to each version that is newer than the current one, and then moves the batch into the
  current one.
- A compaction moves the new version into place, takes the mark from each batch that is ready,
  copies the batches that only the current version has, and then replaces ``_current.json``.

A batch that was ready before its mark was taken either is in the current version by then, and is
copied; or its writer finds it gone, starts again, and finds the new version. A batch that is ready
after that is added to the new version first. So a compaction may be killed at any point. Only two
compactions at a time can each miss a batch that was added to the version of the other; the next
process that opens the table copies it.
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

#: The column that each row has of its folder, once it is read.
BATCH: Final = "shmq_batch"

_CURRENT: Final = "_current.json"
_STAGING: Final = "_staging"
_MERGED: Final = "merged"
#: The folder of the file without rows.
_EMPTY: Final = f"{BATCH}=empty"
#: The end of the name of a staged batch that its writer may move into the table at any moment.
_READY: Final = ".ready"
#: The value in the names of that file's folders, by the column's type: readers infer types from
#: names. Of any other type: "empty".
_VALUES: Final = {
    **dict.fromkeys(("byte", "short", "integer", "long", "float", "double", "decimal"), "0"),
    "boolean": "false",
    "date": "1970-01-01",
    "timestamp": "1970-01-01 00%3A00%3A00",
}
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
        self, session: SparkSession, path: str, form: str, options: Mapping[str, str]
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
        first = self._remove_staged(query)
        name = f"{BATCH}={batch:012d}-{query}"
        if self._folder.exists(_CURRENT):
            if first:
                self._repair()
                self._check_layout(columns)
            if self._has(self.current(), name):
                return
        staged = _make_staging(query)
        self._write(rows, staged, columns)
        if not self._folder.exists(_CURRENT):
            self._create(rows, columns)
        if not self._folder.files(staged):
            self._folder.remove(staged)
            return
        while not self._publish_batch(staged, name):
            pass  # a compaction took the mark: there is a new version

    def _has(self, version: Version, name: str) -> bool:
        """Whether the version has the batch of that name."""
        found = _PLACE.fullmatch(name)
        merged = found is not None and version.merged.get(found[2], -1) >= int(found[1])
        return merged or self._folder.exists(f"{version.path}/{name}")

    def _publish_batch(self, staged: str, name: str) -> bool:
        """Move a staged batch into the table; False if a compaction has taken its mark."""
        ready = staged + _READY
        self._folder.move(staged, ready)
        version = self.current()
        try:
            for number in self._list_versions():
                if number > version.number:
                    self._copy(ready, f"{Version(number).path}/{name}", f"{staged}.copy")
            moved = self._folder.move(ready, f"{version.path}/{name}")
        except Exception:
            if self._folder.exists(ready):
                raise
            return False
        if moved or self._has(version, name):
            self._folder.remove(ready)
            return True
        if self.current() == version:
            raise self._make_missing(version)
        self._take_mark(ready)
        return False

    def _create(self, rows: DataFrame, columns: Sequence[str]) -> None:
        """Create the table, with a file without rows that has their columns."""
        session = rows.sparkSession
        staged = _make_staging(_MERGED)
        kinds = {field.name: field.dataType.typeName() for field in rows.schema}
        folders = "".join(f"/{each}={_VALUES.get(kinds[each], 'empty')}" for each in columns)
        empty = session.createDataFrame([], rows.drop(*columns).schema)
        self._write(empty, f"{staged}/{_EMPTY}{folders}", [])
        if not self._folder.move(staged, Version().path):
            self._folder.remove(staged)
        if not self._folder.exists(_CURRENT):
            self._folder.write_json(_CURRENT, {"path": Version().path, "merged": {}})

    def current(self) -> Version:
        """Return the version that readers are to read. Raises :class:`~shmq.DamagedFile`."""
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
        gets. Raises :class:`~shmq.ShmqError` if no table exists, and if another process compacts
        it in the meantime.
        """
        from pyspark.sql import Observation  # noqa: PLC0415 - heavy, and an extra
        from pyspark.sql import functions as f  # noqa: PLC0415

        if not self._folder.exists(_CURRENT):
            raise ShmqError(
                f"{self._folder.uri} is not a table of a job, as it has no {_CURRENT}: name the "
                f"path of the job's sink"
            )
        self._remove_staged(_MERGED)
        self._repair()
        old = self.current()
        batches = self._list_batches(old)
        if len(batches) < 2:
            return 0
        seen = Observation()
        rows, columns = self._read_rows(session, old, batches)
        rows = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
        staged = _make_staging(_MERGED)
        self._write(rows.hint("rebalance", *columns), f"{staged}/{BATCH}={_MERGED}", columns)
        self._publish(staged, old, batches)
        return int(seen.get["rows"])

    def _publish(self, staged: str, old: Version, batches: Sequence[str]) -> None:
        merged = dict(old.merged)
        for found in filter(None, map(_PLACE.fullmatch, batches)):
            merged[found[2]] = max(merged.get(found[2], -1), int(found[1]))
        # Not the number of one that another compaction made, or left before it was current.
        new = Version(max(self._list_versions()) + 1, merged)
        if self.current() != old or not self._folder.move(staged, new.path):
            self._folder.remove(staged)
            raise ShmqError(
                f"{self._folder.uri} was compacted by another process in the meantime: "
                f"nothing is lost, "
                f"and nothing is left to do"
            )
        self._take_marks()
        self._adopt(old, new)
        self._folder.write_json(_CURRENT, {"path": new.path, "merged": merged})
        self._adopt_all(new)
        for number in self._list_versions():
            if number < old.number:
                self._folder.remove(Version(number).path)

    def _list_versions(self) -> list[int]:
        """The numbers of all versions that there are."""
        found = map(_VERSION.fullmatch, self._folder.names(""))
        return [int(each[1]) for each in found if each is not None]

    def _take_marks(self) -> None:
        """Let the writers of all batches that are ready look for the current version again."""
        for name in self._folder.names(_STAGING):
            if name.endswith(_READY):
                self._take_mark(f"{_STAGING}/{name}")

    def _take_mark(self, ready: str) -> None:
        try:
            self._folder.move(ready, ready.removesuffix(_READY))
        except Exception:  # its writer has moved it into the table
            if self._folder.exists(ready):
                raise

    def _adopt_all(self, version: Version) -> None:
        """Copy the batches that only other versions have, as after two compactions at a time."""
        for number in self._list_versions():
            if number != version.number:
                self._adopt(Version(number), version)

    def _adopt(self, old: Version, new: Version) -> None:
        """Copy the batches that only the old one of two versions has."""
        for name in self._list_batches(old):
            if _PLACE.fullmatch(name) and not self._has(new, name):
                self._copy(f"{old.path}/{name}", f"{new.path}/{name}", _make_staging(_MERGED))

    def _copy(self, name: str, to: str, staged: str) -> None:
        """Copy a folder of a batch, which is there whole or not at all, by way of ``staged``."""
        if self._folder.exists(to):
            return
        self._folder.remove(staged)
        self._folder.copy(name, staged)
        if not self._folder.move(staged, to):
            self._folder.remove(staged)

    def _list_batches(self, version: Version) -> list[str]:
        """The folders of the batches of a version."""
        names = self._folder.names(version.path)
        return [name for name in names if name.startswith(f"{BATCH}=") and name != _EMPTY]

    def _read_rows(
        self, session: SparkSession, version: Version, batches: Sequence[str]
    ) -> tuple[DataFrame, list[str]]:
        """The rows of the batches, and the columns that make their folders, as text."""
        columns = self._list_columns(version, batches[0])
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

    def _remove_staged(self, owner: str) -> bool:
        """Once, remove what an earlier process of the owner has staged; whether it was now."""
        if owner in self._opened:
            return False
        self._opened.add(owner)
        for name in self._folder.names(_STAGING):
            if name.startswith(f"{owner}."):
                self._folder.remove(f"{_STAGING}/{name}")
        return True

    def _repair(self) -> None:
        """Copy what the current version lacks. Raises DamagedFile if it does not exist."""
        version = self.current()
        if not self._folder.exists(version.path):
            raise self._make_missing(version)
        self._adopt_all(version)

    def _check_layout(self, columns: Sequence[str]) -> None:
        """Raise InvalidOption for other columns than those of the table.

        Readers take what is in folders by several sets of columns for a mistake.
        """
        version = self.current()
        there = self._list_columns(version, next(iter(self._list_batches(version)), _EMPTY))
        if there != [*columns]:
            raise InvalidOption(
                f"partition_by={[*columns]} does not go with the table {self._folder.uri}, which "
                f"has folders by {there}: set partition_by to that, or name another path"
            )

    def _list_columns(self, version: Version, batch: str) -> list[str]:
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

    def _make_missing(self, version: Version) -> DamagedFile:
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


def _make_staging(owner: str) -> str:
    """A new folder for what the owner writes: a query, or a compaction."""
    return f"{_STAGING}/{owner}.{secrets.token_hex(8)}"
