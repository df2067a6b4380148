"""A queue as a sink: the options, and what writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import Unsupported
from shmq.spark.options import Option

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

__all__ = ["OPTIONS", "stream_writer", "writer"]

#: The options of a sink, beside those of every use in :mod:`shmq.spark.address`.
OPTIONS: Final[tuple[Option, ...]] = ()


def writer(chosen: Mapping[str, Any], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """What ``df.write`` writes with; ``chosen`` has every option of a write by its name."""
    raise Unsupported(f"queues are not written to: {chosen}, {schema}, {overwrite}")


def stream_writer(
    chosen: Mapping[str, Any], schema: StructType, *, overwrite: bool
) -> DataSourceStreamWriter:
    """What ``df.writeStream`` writes with."""
    raise Unsupported(f"queues are not written to: {chosen}, {schema}, {overwrite}")
