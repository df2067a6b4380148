"""``archive``: writes queues to files, in folders by queue and date, each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import structs

from shmq.spark.jobs import catalog, sinks
from shmq.spark.jobs.config import StreamBase, key
from shmq.spark.jobs.endpoints import FILES, SUBSCRIBED, FileSink, StreamSource
from shmq.spark.jobs.job import Stream, each_batch
from shmq.spark.jobs.values import Names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["JOB", "PARTITIONS", "Archive", "build", "dated"]

#: The columns that make the folders of files: the queue, and the day of the put, in UTC.
PARTITIONS: Final = Names(("topic", "date"))

_DAY: Final = 86_400_000_000


class Archive(StreamBase, frozen=True, kw_only=True):
    """The file of the job."""

    source: Annotated[StreamSource, key("The queues or streams.", SUBSCRIBED)]
    sink: Annotated[FileSink, key("Where the messages go.", {"path": "archive"})]


def build(session: SparkSession, config: Archive, stop_file: str) -> DataStreamWriter:
    """The query from the queues to the sink."""
    sink = config.sink
    if sink.format in FILES and sink.partition_by is None:
        sink = structs.replace(sink, partition_by=PARTITIONS)
    rows = config.source.read(session, stop_file)
    if sink.format != "shmq":
        rows = dated(rows)
    return each_batch(rows, sinks.of(session, sink, "rows"))


def dated(rows: DataFrame) -> DataFrame:
    """The rows with the ``date`` of their put, in UTC."""
    from pyspark.sql import functions  # noqa: PLC0415

    days = functions.floor(functions.unix_micros("timestamp") / _DAY).cast("int")
    return rows.withColumn("date", functions.date_from_unix_date(days))


JOB: Final = Stream(name="archive", about=catalog.ABOUT["archive"], config=Archive, build=build)
