"""``archive``: writes queues to Parquet, in a folder per queue and date, each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shmq.spark.jobs import values
from shmq.spark.jobs.config import Config, Key, Table
from shmq.spark.jobs.job import ABOUT, Stream, each_batch
from shmq.spark.jobs.sinks import FILES, Files
from shmq.spark.jobs.tables import SPARK, STREAM_TOP, queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["JOB", "PARTITIONS", "build", "dated"]

#: The columns that make the folders: the queue, and the day of the put, in UTC.
PARTITIONS: Final = ("topic", "date")

_DAY: Final = 86_400_000_000


def build(session: SparkSession, config: Config) -> DataStreamWriter:
    """The query from the queues to the files."""
    source = {"columns": "all", **config["source"]["options"]}
    rows = session.readStream.format("shmq").options(**source).load()
    return each_batch(dated(rows), Files(session, config["sink"], PARTITIONS).add)


def dated(rows: DataFrame) -> DataFrame:
    """The rows with the ``date`` of their put, in UTC."""
    from pyspark.sql import functions  # noqa: PLC0415

    days = functions.floor(functions.unix_micros("timestamp") / _DAY).cast("int")
    return rows.withColumn("date", functions.date_from_unix_date(days))


def finish(session: SparkSession, config: Config) -> None:
    """Merge the remaining small files."""
    Files(session, config["sink"], PARTITIONS).rest()


JOB: Final = Stream(
    name="archive",
    about=ABOUT["archive"],
    tables=(
        STREAM_TOP,
        queue(
            "source",
            'The queues, by the options of format("shmq").',
            use="stream",
            example='subscribe = "results"',
        ),
        Table(
            name="sink",
            about="The Parquet files, in folders topic=…/date=….",
            keys=(
                Key(
                    name="path",
                    about="Their folder.",
                    check=values.path,
                    required=True,
                    example="archive",
                ),
                *FILES,
            ),
        ),
        SPARK,
    ),
    build=build,
    finish=finish,
)
