"""A batch read of queues' files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from shmq.api.columns import STATES
from shmq.spark.dmsq.bounds import Bounds
from shmq.spark.dmsq.files import Files, Slice
from shmq.spark.dmsq.options import STATES as FILE_STATES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class DmsqReader(DataSourceReader):
    """Reads the messages that the files hold when the query is planned."""

    def __init__(self, files: Files, schema: StructType, chosen: Mapping[str, Any]) -> None:
        self._files = files
        self._schema = schema
        self._least: int | None = chosen["minPartitions"]
        self._max_bytes: int = chosen["maxBytesPerBatch"]
        self._states = _number_states(chosen["states"])
        self._bounds = Bounds.of(chosen)
        # In a session that does not push filters, Spark refuses a reader that overrides
        # pushFilters; _Push makes the attribute look like the method of the base class.
        self.pushFilters: Any = _Push(self)

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Read only rows that pass these filters; returns the filters that Spark must apply."""
        for wanted in filters:
            narrowed = self._bounds.narrowed(wanted)
            if narrowed is None:
                yield wanted
            else:
                self._bounds = narrowed

    def partitions(self) -> list[InputPartition]:
        """The slices. Raises :class:`~shmq.ShmqError`, at the driver."""
        return list(self._files.slices(self._bounds, self._least))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, in Arrow batches."""
        from shmq.spark.shared.arrow import MessageRows, arrow_schema  # noqa: PLC0415 - heavy

        if not isinstance(partition, Slice):
            return  # no slice: nothing is within the bounds
        schema = arrow_schema(self._schema)
        times = (self._bounds.since, self._bounds.until)
        with self._files.open(partition) as chain:
            at: int | None = 0
            while at is not None:
                run, at = chain.columns(at, max_bytes=self._max_bytes, put_at=times)
                if run.count:
                    rows = MessageRows(run, partition.queue)
                    states = rows.small(run.state)
                    chosen = None if self._states is None else np.isin(states, self._states)
                    yield rows.batch(schema, chosen)


class SkippedReader(DataSourceReader):
    """Reads the skipped places of the files, instead of their messages."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """A row for each skipped place."""
        del partition
        with self._files.look() as looked:
            yield from [(queue, *skipped) for queue, skipped in looked.skipped]


def _number_states(states: Sequence[str]) -> list[int] | None:
    """The states as numbers; None: all states."""
    found = sorted({STATES.index(state) for state in states})
    return None if len(found) == len(FILE_STATES) else found


class _Push:
    """A reader's ``pushFilters``; a session that does not push filters never calls it."""

    def __init__(self, reader: DmsqReader) -> None:
        self._reader = reader
        self.__func__: Callable[..., Any] = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)
