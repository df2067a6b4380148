"""The log of the valid files of a folder, in the format of Spark's own streams.

``_spark_metadata`` has one file per version: ``7`` lists the files added by version 7, and
every tenth one, such as ``9.compact``, lists all files. A version appears whole or not at all,
so its additions and removals take effect at once, and Spark reads only the files of the newest
version. Each version also names the batch and query that it has, in a line that Spark takes for
a folder and skips.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from shmq.errors import DamagedFile, ShmqError
from shmq.spark.jobs.filesystem import File, Folder

__all__ = ["FileSinkLog"]

_LOG: Final = "_spark_metadata"
#: The folder in the entries that name batches; it does not exist.
_BATCHES: Final = "_batches"
#: The first line of each version.
_FORMAT: Final = "v1"
#: Every so many versions, one lists all files. It is Spark's default; Spark can infer another
#: interval only from two full versions.
_FULL_EACH: Final = 10
#: How many full versions are kept: readers may still use the last but one.
_FULL_KEPT: Final = 3


class FileSinkLog:
    """The valid files, and the newest batch of each query in them.

    Only one process may write the log; a second writer is detected and refused.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.files: dict[str, File] = {}
        #: The newest batch by the id of its query.
        self.batches: dict[str, int] = {}
        self._next = 0
        self._read()

    def commit(
        self,
        add: Mapping[str, File],
        *,
        remove: Iterable[str] = (),
        batch: tuple[str, int] | None = None,
    ) -> None:
        """Make a version that adds and removes these files, for that batch of the query.

        Raises :class:`~shmq.ShmqError` if another process made that version.
        """
        gone = set(remove)
        if gone:
            while not self._is_full(self._next):
                self._write([])  # only a full version can remove files
        files = {name: file for name, file in self.files.items() if name not in gone}
        files.update(add)
        batches = self.batches | (dict([batch]) if batch else {})
        if self._is_full(self._next):
            self._write(self._lines(files, batches))
        else:
            self._write(self._lines(add, dict([batch]) if batch else {}))
        self.files, self.batches = files, batches

    def _read(self) -> None:
        versions = self._versions()
        if not versions:
            return
        newest = max(versions)
        full = [number for number in versions if self._is_full(number)]
        first = max(full) if full else 0
        for number in range(first, newest + 1):
            if number not in versions:
                raise DamagedFile(self._folder.path(_LOG), 0, f"version {number} is not there")
            self._take(versions[number])
        self._next = newest + 1

    def _take(self, version: str) -> None:
        name = f"{_LOG}/{version}"
        head, *lines = self._folder.read(name).splitlines() or [""]
        if head != _FORMAT:
            raise DamagedFile(self._folder.path(name), 0, f"it begins with {head!r:.40}")
        at = len(head) + 1
        for line in lines:
            try:
                self._take_entry(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DamagedFile(self._folder.path(name), at, f"no entry: {error}") from error
            at += len(line.encode()) + 1

    def _take_entry(self, entry: dict[str, Any]) -> None:
        name = unquote(entry["path"].removeprefix(f"{self._folder.uri}/"))
        if entry["isDir"]:
            _, query, batch = name.rsplit("/", 2)
            self.batches[query] = int(batch)
            return
        self.files[name] = File(
            entry["path"],
            int(entry["size"]),
            int(entry["modificationTime"]),
            int(entry["blockReplication"]),
            int(entry["blockSize"]),
        )

    def _lines(self, files: Mapping[str, File], batches: Mapping[str, int]) -> list[str]:
        return [
            *(_line(file.uri, file.size, file) for file in files.values()),
            *(
                _line(f"{self._folder.uri}/{_BATCHES}/{quote(query, '')}/{batch}", 0, None)
                for query, batch in batches.items()
            ),
        ]

    def _write(self, lines: list[str]) -> None:
        full = self._is_full(self._next)
        name = f"{_LOG}/{self._next}{'.compact' if full else ''}"
        if not self._folder.create(name, "\n".join([_FORMAT, *lines])):
            raise ShmqError(
                f"{self._folder.path(name)} was written by another process: let one job alone "
                f"write there, and start it again"
            )
        self._next += 1
        if full:
            self._drop_old()

    def _drop_old(self) -> None:
        oldest = self._next - _FULL_EACH * _FULL_KEPT
        for number, version in self._versions().items():
            if number < oldest:
                self._folder.remove(f"{_LOG}/{version}")

    def _versions(self) -> dict[int, str]:
        """The file names of the existing versions, by number."""
        names = self._folder.names(_LOG)
        found = {name.removesuffix(".compact"): name for name in names}
        return {
            int(number): name
            for number, name in found.items()
            if number.isascii() and number.isdigit()
        }

    @staticmethod
    def _is_full(version: int) -> bool:
        return (version + 1) % _FULL_EACH == 0


def _line(uri: str, size: int, file: File | None) -> str:
    """A line in the form of Spark's ``SinkFileStatus``."""
    return json.dumps(
        {
            "path": uri,
            "size": size,
            "isDir": file is None,
            "modificationTime": file.modified if file else 0,
            "blockReplication": file.replication if file else 1,
            "blockSize": file.block if file else 1,
            "action": "add",
        },
        separators=(",", ":"),
    )
