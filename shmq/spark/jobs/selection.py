"""The rows of a replay. They are selected once and kept, so that a restart uses the same rows.

The folder of the checkpoint has ``asked.json``, the replay's configuration and name; ``rows/``,
the rows in order, in one file per batch; ``portions.json``, these files and their numbers of
rows, whose existence means that the selection is complete; ``done/``, the last batch known to be
in the queue; and ``finished`` once all batches are.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from shmq.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from shmq.spark.jobs.filesystem import Folder

__all__ = ["Portion", "Selection"]

_ASKED: Final = "asked.json"
_ROWS: Final = "rows"
_PORTIONS: Final = "portions.json"
_DONE: Final = "done"
_FINISHED: Final = "finished"

#: The name of a file that Spark writes, with the numbers of its task and of the file.
_FILE: Final = re.compile(r"part-(\d+)-.*?c(\d+)\.[^/]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Portion:
    """The rows of one batch: their file in the checkpoint, and their number."""

    file: str
    rows: int


class Selection:
    """The rows that a replay puts into a queue, and its progress."""

    def __init__(self, folder: Folder, publisher: str) -> None:
        self._folder = folder
        #: The publisher's name for its batches.
        self.publisher = publisher
        #: How many batches are known to be in the queue.
        self.done = max([int(name) + 1 for name in folder.names(_DONE)], default=0)

    @classmethod
    def of(cls, folder: Folder, asked: Mapping[str, Any]) -> Self:
        """The selection of the checkpoint, or a new one there.

        Raises :class:`~shmq.InvalidOption` for a checkpoint of another configuration.
        """
        folder.write_json(_ASKED, {"publisher": f"replay/{secrets.token_hex(8)}", "of": asked})
        kept = folder.read_json(_ASKED)
        for key, value in asked.items():
            if kept["of"].get(key) != value:
                raise InvalidOption(
                    f"the checkpoint {folder.uri} is of another replay: {key} was "
                    f"{kept['of'].get(key)!r}, and is {value!r}; name another checkpoint, or "
                    f"remove this one to begin anew"
                )
        return cls(folder, kept["publisher"])

    def portions(self, choose: Callable[[], DataFrame], size: int) -> list[Portion]:
        """The batches in order, of up to ``size`` rows; calls ``choose`` if none are chosen yet."""
        if _PORTIONS not in self._folder.names(""):
            self._folder.write_json(_PORTIONS, self._choose(choose(), size))
        return [Portion(*each) for each in self._folder.read_json(_PORTIONS)]

    def rows_of(self, portion: Portion) -> str:
        """The path by which Spark reads a portion's file."""
        return self._folder.path(f"{_ROWS}/{portion.file}")

    def topics(self, session: SparkSession) -> list[str]:
        """The queues that its rows name."""
        kept = session.read.parquet(self._folder.path(_ROWS))
        return sorted(row[0] for row in kept.select("topic").distinct().collect())

    def note(self, number: int) -> None:
        """Record that this batch, and all before it, are in the queue."""
        self._folder.create(f"{_DONE}/{number:012d}", "")
        if number:
            self._folder.remove(f"{_DONE}/{number - 1:012d}")
        self.done = number + 1

    def finish(self, forget: Callable[[], None]) -> None:
        """Once all batches are in the queue: call ``forget()`` and remove the rows here."""
        names = self._folder.names("")
        if _FINISHED not in names:
            self._folder.create(_FINISHED, "")
        if _ROWS in names:
            forget()
            self._folder.remove(_ROWS)

    def _choose(self, chosen: DataFrame, size: int) -> list[tuple[str, int]]:
        path = self._folder.path(_ROWS)
        chosen.write.mode("overwrite").option("maxRecordsPerFile", size).parquet(path)
        kept = chosen.sparkSession.read.schema(chosen.schema).parquet(path)
        counted = kept.groupBy("_metadata.file_name").count().collect()
        return sorted(((row[0], row[1]) for row in counted), key=_place)


def _place(portion: tuple[str, int]) -> tuple[int, int]:
    """The file's place in the order of the rows."""
    found = _FILE.fullmatch(portion[0])
    assert found is not None, f"Spark has another name for its files: {portion[0]}"
    return int(found[1]), int(found[2])
