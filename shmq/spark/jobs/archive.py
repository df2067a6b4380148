"""``archive``: writes queues to files, in folders by queue and date, each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from shmq.spark.jobs import sinks
from shmq.spark.jobs.config import StreamBase, key
from shmq.spark.jobs.endpoints import SUBSCRIBED, FileSink, StreamSource
from shmq.spark.jobs.job import Stream, each_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: The columns that make the folders of files: the queue, and the day of the put, in UTC.
FOLDERS: Final = ("topic", "date")

_DAY: Final = 86_400_000_000


class Archive(StreamBase, frozen=True, kw_only=True):
    """The file of the job."""

    source: Annotated[StreamSource, key("The queues or streams.", SUBSCRIBED)]
    sink: Annotated[FileSink, key("Where the messages go.", {"path": "archive"})]


def build(session: SparkSession, config: Archive, stop_file: str) -> DataStreamWriter:
    """The query from the queues to the sink."""
    rows = config.source.read(session, stop_file)
    if config.sink.format != "shmq":
        rows = dated(rows)
    return each_batch(rows, sinks.of(session, config.sink, "rows", FOLDERS))


def dated(rows: DataFrame) -> DataFrame:
    """The rows with the ``date`` of their put, in UTC."""
    from pyspark.sql import functions  # noqa: PLC0415

    days = functions.floor(functions.unix_micros("timestamp") / _DAY).cast("int")
    return rows.withColumn("date", functions.date_from_unix_date(days))


JOB: Final = Stream(name="archive", config=Archive, build=build)
