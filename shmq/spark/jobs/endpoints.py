"""The tables of a file that say where rows come from and where they go: a format of Spark's."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

import msgspec

from shmq.errors import InvalidOption
from shmq.spark.jobs.config import Table, key
from shmq.spark.jobs.table import current_path
from shmq.spark.jobs.values import Location, Names, Options
from shmq.spark.shared.options import BATCH, STREAM, WRITE, Use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The formats whose rows are files in a folder.
FILES: Final = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})

#: The modules that check the options of shmq's formats; Spark checks those of the others.
_CHECKS: Final = MappingProxyType(
    {"shmq": "shmq.spark.format_dispatch", "dmsq": "shmq.spark.dmsq.options"}
)

#: File systems that copy a folder to rename it.
_COPYING: Final = ("s3:", "s3a:", "s3n:", "gs:", "oss:", "obs:", "cos:", "wasb:", "wasbs:")


#: Examples for the templates.
SUBSCRIBED: Final = {"options": {"subscribe": "results"}}
TOPIC: Final = {"options": {"topic": "orders"}}


class _Endpoint(Table, frozen=True, kw_only=True):
    """Rows in a format of Spark's, and the format's options."""

    use: ClassVar[Use]

    format: Annotated[str, key("The format of the rows: shmq, or any that Spark has.")] = "shmq"
    path: Annotated[
        Location | None, key("The folder of the files, or the name that the format takes.", "rows")
    ] = None
    options: Annotated[Options, key("The options of the format.")] = msgspec.field(
        default_factory=Options
    )

    def prepared(self, place: Mapping[str, str]) -> Self:
        """The table with the place of its queues; its options are checked."""
        options = dict(self.options)
        if self.format == "shmq" and "url" not in options:
            options = {**place, **options}
        if self.path is None and self.format in FILES:
            raise InvalidOption(f"'path' is missing: the folder of the files in {self.format}")
        if self.format in _CHECKS:
            asked = options if self.path is None else {**options, "path": self.path}
            use = self.use if self.format == "shmq" else BATCH
            importlib.import_module(_CHECKS[self.format]).check(asked, use)
        return msgspec.structs.replace(self, options=Options(options))

    @property
    def _every(self) -> dict[str, str]:
        """The option that a job reads all columns by, if the file does not choose."""
        return {"columns": "all"} if self.format in _CHECKS else {}

    def location(self, session: SparkSession) -> tuple[str, ...]:
        """The path to read: of a table of files its current version; none of some formats."""
        if self.path is None:
            return ()
        path = str(self.path)
        return (current_path(session, path) if self.format in FILES else path,)


class BatchSource(_Endpoint, frozen=True, kw_only=True):
    """Rows that are read once."""

    use: ClassVar[Use] = BATCH

    def read(self, session: SparkSession, **more: str) -> DataFrame:
        """The rows; ``more`` are options that the file may override."""
        reader = session.read.format(self.format).options(**{**self._every, **more, **self.options})
        return reader.load(*self.location(session))


class StreamSource(_Endpoint, frozen=True, kw_only=True):
    """Rows that keep coming; files of durable queues are read once."""

    use: ClassVar[Use] = STREAM

    def read(self, session: SparkSession, stop_file: str, **more: str) -> DataFrame:
        """The rows as a stream that ends once the stop file exists, if they are of ``shmq``."""
        page = session.sparkContext.uiWebUrl
        if self.format == "shmq" and page is not None:
            more["uiWebUrl"] = page
        options = {**self._every, **more, **self.options}
        place = self.location(session)
        once = session.read.format(self.format).options(**options)
        if self.format == "dmsq":
            return once.load(*place)
        stream = session.readStream.format(self.format)
        if self.format == "shmq":
            options["stopFile"] = stop_file
        elif self.format in FILES:
            stream = stream.schema(once.load(*place).schema)
        return stream.options(**options).load(*place)


class Sink(_Endpoint, frozen=True, kw_only=True):
    """Where rows go."""

    use: ClassVar[Use] = WRITE

    mode: Annotated[
        Literal["append", "overwrite"],
        key("Whether a batch is added, or replaces what is there (formats other than files)."),
    ] = "append"
    partition_by: Annotated[
        Names | None, key("The columns that make folders or partitions.", ["date"])
    ] = None

    def prepared(self, place: Mapping[str, str]) -> Self:
        """The table with the place of its queues; what cannot work is refused."""
        if self.format in FILES and self.mode != "append":
            raise InvalidOption(
                f'mode = "overwrite" is for formats that replace their rows at once; files in '
                f'{self.format} take mode = "append"'
            )
        if self.format in FILES and str(self.path).lower().startswith(_COPYING):
            raise InvalidOption(
                f"path = {self.path!r}: files in {self.format} take a file system that renames a "
                f'folder at once, as a local disk or HDFS; there, format = "delta" or "iceberg"'
            )
        return super().prepared(place)

    @property
    def place(self) -> tuple[object, ...]:
        """What tells one place from another."""
        return self.format, self.path, self.options.get("url"), self.options.get("topic")


class FileSink(Sink, frozen=True, kw_only=True):
    """Where rows go, files by default."""

    format: Annotated[str, key("The format of the rows: parquet, or any that Spark has.")] = (
        "parquet"
    )
