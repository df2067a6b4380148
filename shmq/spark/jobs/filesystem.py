"""A folder on any file system that Spark can use, by its file system's public interface."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any

from shmq.errors import DamagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """A folder and its contents, by names relative to it. Raises what Hadoop raises."""

    def __init__(self, session: SparkSession, path: str) -> None:
        jvm: Any = session._jvm
        self._fs: Any = jvm.org.apache.hadoop.fs
        self._gateway: Any = session.sparkContext._gateway
        self._conf: Any = session._jsc.hadoopConfiguration()
        system: Any = self._fs.Path(path).getFileSystem(self._conf)
        self._is_local = system.getScheme() == "file"
        # Without checksums, which would be a second file: a rename replaces one file.
        self._system: Any = system.getRawFileSystem() if self._is_local else system
        self._root: Any = system.makeQualified(self._fs.Path(path))
        #: The folder's own name, with its scheme.
        self.uri: str = self._root.toUri().toString().rstrip("/")

    def path(self, name: str) -> str:
        """The path by which Spark reads and writes that name."""
        return str(self._make_path(name).toString())

    def names(self, within: str) -> list[str]:
        """The names in a folder below, in order; none if it does not exist."""
        path = self._make_path(within)
        if not self._system.exists(path):
            return []
        return sorted(each.getPath().getName() for each in self._system.listStatus(path))

    def files(self, within: str) -> list[str]:
        """The files below a folder, by names relative to it, without hidden ones."""
        top = self._system.makeQualified(self._make_path(within))
        start = len(top.toUri().getPath()) + 1
        found = []
        rest = self._system.listFiles(top, True)
        while rest.hasNext():
            name = str(rest.next().getPath().toUri().getPath())[start:]
            if not name.rpartition("/")[2].startswith(("_", ".")):
                found.append(name)
        return found

    def exists(self, name: str) -> bool:
        """Whether there is a file or a folder of that name."""
        return bool(self._system.exists(self._make_path(name)))

    def read(self, name: str) -> str:
        """The text of a file."""
        stream = self._system.open(self._make_path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def read_json(self, name: str) -> Any:
        """The value that :meth:`write_json` wrote. Raises :class:`~shmq.DamagedFile`."""
        try:
            return json.loads(self.read(name))
        except ValueError:
            raise DamagedFile(self.path(name), 0, "it is not JSON") from None

    def write_json(self, name: str, value: Any) -> None:
        """Make a file of a value, or replace it, at once: readers see the old or the new one."""
        aside = f".{name.replace('/', '.')}.{secrets.token_hex(8)}"
        stream = self._system.create(self._make_path(aside), True)
        try:
            stream.write(json.dumps(value, allow_nan=False).encode())
        finally:
            stream.close()
        self._system.mkdirs(self._make_path(name).getParent())
        if self._is_local:
            os.replace(*map(self._make_local, (aside, name)))  # noqa: PTH105 - names, not paths
        else:
            overwrite = self._gateway.new_array(self._fs.Options.Rename, 1)
            overwrite[0] = self._fs.Options.Rename.OVERWRITE
            self._rename(aside, name, overwrite)

    def move(self, name: str, to: str) -> bool:
        """Rename a folder at once; False if ``to`` exists, or the folder that is to hold it not."""
        if self.exists(to) or not self._system.exists(self._make_path(to).getParent()):
            return False
        try:
            if self._is_local:
                os.rename(*map(self._make_local, (name, to)))  # noqa: PTH104 - names, not paths
            else:
                self._rename(name, to, self._gateway.new_array(self._fs.Options.Rename, 0))
        except Exception:
            if self.exists(to) or not self._system.exists(self._make_path(to).getParent()):
                return False
            raise
        return True

    def copy(self, name: str, to: str) -> None:
        """Copy a folder with its contents."""
        system, files = self._system, self._fs.FileUtil
        files.copy(system, self._make_path(name), system, self._make_path(to), False, self._conf)

    def make(self, name: str) -> None:
        """Make a folder, and those above it; it may exist."""
        self._system.mkdirs(self._make_path(name))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents; do nothing if it does not exist."""
        self._system.delete(self._make_path(name), True)

    def _rename(self, name: str, to: str, how: Any) -> None:
        context = self._fs.FileContext.getFileContext(self._root.toUri(), self._conf)
        context.rename(self._make_path(name), self._make_path(to), how)

    def _make_local(self, name: str) -> str:
        return str(self._make_path(name).toUri().getPath())

    def _make_path(self, name: str) -> Any:
        path = self._fs.Path
        return path(self._root, path(None, None, name)) if name else self._root
