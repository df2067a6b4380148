"""``transform``: a function of the user's between a source and a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shmq.spark.jobs import functions, values
from shmq.spark.jobs.config import Config, Key, Table
from shmq.spark.jobs.job import Stream
from shmq.spark.jobs.tables import SPARK, STREAM_TOP, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["JOB"]

_TRANSFORM: Final = Table(
    name="transform",
    about="What is done with the rows.",
    keys=(
        Key(
            name="function",
            about='What takes a DataFrame and returns one, as "module:function".',
            check=values.function,
            required=True,
            example="app:delays",
        ),
    ),
)


def _check(config: Config) -> None:
    functions.load(config["transform"]["function"])


def build(session: SparkSession, config: Config) -> DataStreamWriter:
    """The query from the source through the function to the sink."""
    made = functions.apply(config["transform"]["function"], _source(session, config))
    sink = config["sink"]
    writer = made.writeStream.format(sink["format"]).options(**sink["options"])
    return writer if sink["path"] is None else writer.option("path", sink["path"])


def _source(session: SparkSession, config: Config) -> DataFrame:
    source = config["source"]
    reader = session.readStream.format(source["format"]).options(**source["options"])
    if source["path"] is None:
        return reader.load()
    return reader.schema(session.read.parquet(source["path"]).schema).load(source["path"])


JOB: Final = Stream(
    name="transform",
    about="A function of yours between any source and any sink.",
    tables=(
        STREAM_TOP,
        rows(
            "source",
            'Where rows come from: a queue, by the options of format("shmq"), or files.',
            use="stream",
            formats=("shmq", "parquet"),
            example='subscribe = "results"',
        ),
        _TRANSFORM,
        rows(
            "sink",
            'Where they go: a queue, by the options of format("shmq"), or files.',
            use="write",
            formats=("shmq", "parquet"),
            example='topic = "delays"',
        ),
        SPARK,
    ),
    check=_check,
    build=build,
)
