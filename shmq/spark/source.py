"""``format("shmq")``: passes Spark's calls on to the kind, queue or stream, that is meant.

Only :mod:`shmq.spark.format_dispatch` chooses the :class:`~shmq.spark.shared.kind.Kind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from shmq.errors import ShmqError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shmq.spark.shared.kind import Kind


class ShmqSource(DataSource):
    """The format ``shmq``. Spark makes one per DataFrame and per write, at the driver."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(…)``."""
        return "shmq"

    #: The option ``kind`` as it was decided: it holds from ``load()`` on.
    _decided: Mapping[str, str] = MappingProxyType({})

    def kind(self, *, for_query: bool = False) -> Kind[Any]:
        """The kind that the options mean. Raises :class:`~shmq.ShmqError`.

        If nothing decides, a batch reads no queues; ``for_query`` that is an error.
        """
        from shmq.spark.format_dispatch import default_kind, find_kind  # noqa: PLC0415 - Spark looks at each format

        kind = find_kind({**self.options, **self._decided})
        if kind is None:
            return default_kind(self.options, for_query=for_query)
        self._decided = {"kind": kind.name}
        return kind

    def schema(self) -> str:
        """The columns, as DDL. Raises :class:`~shmq.InvalidOption`."""
        return self.kind().schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for ``spark.read``."""
        return self.kind().reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader for ``spark.readStream``."""
        try:
            return self.kind(for_query=True).stream_reader(self.options, schema)
        except ShmqError as error:
            return _Refused(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer for ``df.write``."""
        return self.kind().writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """The writer for ``df.writeStream``."""
        return self.kind().stream_writer(self.options, schema, overwrite=overwrite)


class _Refused(DataSourceStreamReader):
    """A streaming read that fails at its first use, with the reason.

    Spark, if it is given no reader, replaces the error by one of its own, as it tries to stop the
    reader that it does not have.
    """

    def __init__(self, error: ShmqError) -> None:
        self._error = error

    def _raise(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = partitions = read = _raise  # noqa: N815
