"""A folder on any file system that Spark can use: this host, HDFS, an object store."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["File", "Folder"]


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """A file: its name in Spark, and the attributes that Spark's log keeps."""

    uri: str
    size: int
    #: Milliseconds since 1970.
    modified: int
    replication: int
    block: int

    @classmethod
    def of(cls, status: Any) -> Self:
        """The file of a Hadoop file status."""
        return cls(
            status.getPath().toUri().toString(),
            int(status.getLen()),
            int(status.getModificationTime()),
            int(status.getReplication()),
            int(status.getBlockSize()),
        )


class Folder:
    """A folder and its contents, by names relative to it. Raises what Hadoop raises."""

    def __init__(self, session: SparkSession, path: str) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._conf: Any = session._jsc.hadoopConfiguration()
        root = jvm.org.apache.hadoop.fs.Path(path)
        self._system: Any = root.getFileSystem(self._conf)
        self._root: Any = self._system.makeQualified(root)
        #: The folder's own name, with its scheme.
        self.uri: str = self._root.toUri().toString().rstrip("/")

    def path(self, name: str) -> str:
        """The path by which Spark reads and writes that name."""
        return str(self._path(name).toString())

    def names(self, within: str) -> list[str]:
        """The names in a folder below; none if it does not exist."""
        path = self._path(within)
        if not self._system.exists(path):
            return []
        return [status.getPath().getName() for status in self._system.listStatus(path)]

    def files(self, within: str) -> dict[str, File]:
        """All files below that folder, by names relative to it, without hidden ones."""
        top = self._path(within)
        prefix = self._system.makeQualified(top).toUri().getPath().rstrip("/") + "/"
        found = {}
        rest = self._system.listFiles(top, True)
        while rest.hasNext():
            status = rest.next()
            name = status.getPath().toUri().getPath().removeprefix(prefix)
            if not name.rpartition("/")[2].startswith(("_", ".")):
                found[name] = File.of(status)
        return found

    def read(self, name: str) -> str:
        """The text of a file."""
        stream = self._system.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def create(self, name: str, text: str) -> bool:
        """Make a file atomically, with all its text or not at all; False if it exists already."""
        checkpointing = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        path = self._path(name)
        manager = checkpointing.CheckpointFileManager.create(path.getParent(), self._conf)
        if not manager.exists(path.getParent()):
            manager.mkdirs(path.getParent())
        if manager.exists(path):
            return False
        stream = manager.createAtomic(path, False)
        try:
            stream.write(text.encode())
            stream.close()
        except Exception:
            stream.cancel()
            raise
        return True

    def move(self, name: str, to: str) -> File:
        """Rename a file to a name that must be free, and return the renamed file."""
        target = self._path(to)
        self._system.mkdirs(target.getParent())
        if not self._system.rename(self._path(name), target):
            raise FileExistsError(f"{self.path(name)} cannot be moved to {self.path(to)}")
        return File.of(self._system.getFileStatus(target))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents; do nothing if it does not exist."""
        self._system.delete(self._path(name), True)

    def write_json(self, name: str, value: Any) -> bool:
        """As :meth:`create`, with a value as JSON."""
        return self.create(name, json.dumps(value))

    def read_json(self, name: str) -> Any:
        """The value that :meth:`write_json` wrote."""
        return json.loads(self.read(name))

    def _path(self, name: str) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path
        return path(self._root, path(None, None, name)) if name else self._root
