"""``aggregate``: counts, rates, sizes and waits per window of time, and the hot keys.

A window is closed once the watermark, which is the newest message's time less ``late``, has
passed its end. A later message is late: a separate row counts it, so no message is dropped
silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shmq.spark.jobs import sinks, values
from shmq.spark.jobs.config import Config, Key, Table
from shmq.spark.jobs.job import ABOUT, Stream, each_batch
from shmq.spark.jobs.tables import SPARK, STREAM_TOP, queue, rows
from shmq.spark.jobs.windows import Windows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["JOB", "build", "finish", "hot"]

#: The properties that messages may be grouped by, with their columns; also ``header.NAME``.
_PLAIN: Final = {
    "queue": "topic",
    "stream": "topic",
    "partition": "partition",
    "group": "key",
    "key": "key",
    "codec": "codec",
    "priority": "priority",
}
_HEADER: Final = re.compile(r"header\.(.+)")

#: The tables that say where the results go.
_ENDS: Final = ("parquet", "results", "hot")


def _by(value: Any, folder: Path) -> tuple[str, ...]:
    found = values.names(value, folder)
    named = [_column(name) for name in found]
    if not all(name in _PLAIN or _HEADER.fullmatch(name) for name in found):
        raise ValueError(f'some of {", ".join(_PLAIN)} and "header.NAME"')
    if len(set(named)) < len(named):
        raise ValueError("names of which no two become the same column")
    return found


_AGGREGATE: Final = Table(
    name="aggregate",
    about="What is counted.",
    keys=(
        Key(
            name="window",
            about="How long a window of time is.",
            check=values.seconds(0.001, 366 * 86400),
            default=60.0,
            example="1m",
        ),
        Key(
            name="late",
            about="How much older than the newest message one may be, and still count.",
            check=values.seconds(0, 366 * 86400),
            default=600.0,
            example="10m",
        ),
        Key(
            name="by",
            about=f'What is counted apart: {", ".join(_PLAIN)}, "header.NAME".',
            check=_by,
            default=("queue",),
            example=["queue", "group", "header.kind"],
        ),
        Key(
            name="hot",
            about="What is hot: how often the mean rate of all in its window.",
            check=values.number(1, 1e9),
            default=3.0,
        ),
        Key(
            name="until",
            about="A column of files that says when a message was done, for its latency.",
            check=values.text,
            example="acked_at",
        ),
    ),
)


def check(config: Config) -> None:
    """Check that the results go somewhere, and that ``until`` is used only with files."""
    if not any(name in config for name in _ENDS):
        raise config.wrong(f"it needs one of the tables {', '.join(f'[{end}]' for end in _ENDS)}")
    if config["aggregate"]["until"] is not None and config["source"]["format"] == "shmq":
        raise config.wrong(
            "until in [aggregate] names a column of files: of queues, the latency is until the "
            "batch that took the message began"
        )


def build(session: SparkSession, config: Config) -> DataStreamWriter:
    """The query from the source to all its sinks."""
    settings = config["aggregate"]
    windows = Windows(
        session,
        config[""]["checkpoint"],
        tuple(_column(name) for name in settings["by"]),
        seconds=settings["window"],
        late=settings["late"],
    )
    ends = _ends(session, config)

    def put(batch: DataFrame, query: str, number: int) -> None:
        closed, late = windows.add(batch, number)
        if "parquet" in ends:
            ends["parquet"].add(_dated(_told(closed, late, settings)), query, number)
        if "results" in ends:
            ends["results"].add(_messages(_told(closed, late, settings)), query, number)
        if "hot" in ends:
            ends["hot"].add(_messages(hot(closed, settings["hot"])), query, number)

    return each_batch(_read(session, config), put)


def _ends(session: SparkSession, config: Config) -> dict[str, sinks.Sink]:
    ends: dict[str, sinks.Sink] = {
        name: sinks.Queue(config[name]["options"], name)
        for name in ("results", "hot")
        if name in config
    }
    if "parquet" in config:
        ends["parquet"] = sinks.Files(session, config["parquet"], ("date",))
    return ends


def _read(session: SparkSession, config: Config) -> DataFrame:
    """The messages with the columns that :class:`Windows` needs."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy, and an extra

    source, settings = config["source"], config["aggregate"]
    stream = session.readStream.format(source["format"])
    if source["format"] == "shmq":
        wanted = {"columns": ",".join(_needed(settings["by"]))}
        found = stream.options(**wanted, **source["options"]).load()
        # The time of the batch, which stays the same when it runs again.
        done = f.current_timestamp()
    else:
        files = session.read.options(**source["options"]).parquet(source["path"])
        found = stream.options(**source["options"]).schema(files.schema).load(source["path"])
        until = settings["until"]
        done = f.col(until) if until else f.lit(None).cast("timestamp")
    return found.select(
        f.col("timestamp").alias("at"),
        f.coalesce(f.octet_length("value"), f.lit(0)).cast("bigint").alias("bytes"),
        ((f.unix_micros(done) - f.unix_micros("timestamp")) / 1e6).alias("latency"),
        *(_key(name).alias(_column(name)) for name in settings["by"]),
    )


def _needed(by: tuple[str, ...]) -> list[str]:
    keys = ["headers" if _HEADER.fullmatch(name) else _PLAIN[name] for name in by]
    return list(dict.fromkeys(["timestamp", "value", *keys]))


def _key(name: str) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    header = _HEADER.fullmatch(name)
    if header is None:
        return f.col(_PLAIN[name]).cast("string")
    alike = f.filter("headers", lambda each: each["key"] == header[1])
    return f.get(alike, f.lit(0))["value"].cast("string")


def _column(name: str) -> str:
    """The name of a key's column: ``header.a-b`` becomes ``header_a_b``."""
    return re.sub(r"\W", "_", name)


def _told(closed: DataFrame, late: DataFrame, settings: Mapping[str, Any]) -> DataFrame:
    """The rows of both kinds: closed windows, and counts of late messages."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    nothing = f.lit(0).cast("bigint")
    length = f.make_dt_interval(secs=f.lit(settings["window"]).cast("decimal(18,6)"))
    both = closed.withColumn("late", nothing).unionByName(
        late.withColumn("messages", nothing), allowMissingColumns=True
    )
    keys = [_column(name) for name in settings["by"]]
    first = ["window_start", "window_end", *keys, "messages", "late"]
    told = both.withColumn("window_end", f.col("window_start") + length)
    return told.select(*first, *(name for name in closed.columns if name not in first))


def hot(closed: DataFrame, factor: float) -> DataFrame:
    """The closed windows with more than ``factor`` times the mean rate of all keys."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    mean = f.avg("rate").over(Window.partitionBy("window_start"))
    told = closed.withColumn("mean_rate", mean).where(f.col("rate") > factor * f.col("mean_rate"))
    return told.withColumn("times", f.col("rate") / f.col("mean_rate"))


def _dated(told: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return told.withColumn("date", f.to_date("window_start"))


def _messages(told: DataFrame) -> DataFrame:
    """One JSON message for each row."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return told.select(f.to_json(f.struct("*")).alias("value"), f.lit("json").alias("codec"))


def finish(session: SparkSession, config: Config) -> None:
    """Merge the remaining small files."""
    for end in _ends(session, config).values():
        end.rest()


JOB: Final = Stream(
    name="aggregate",
    about=ABOUT["aggregate"],
    tables=(
        STREAM_TOP,
        rows(
            "source",
            'The messages: queues or streams, by the options of format("shmq"), or an archive.',
            use="stream",
            formats=("shmq", "parquet"),
            example='subscribe = "results"',
        ),
        _AGGREGATE,
        Table(
            name="parquet",
            about="The results as Parquet files, in folders date=….",
            optional=True,
            keys=(
                Key(
                    name="path",
                    about="Their folder.",
                    check=values.path,
                    required=True,
                    example="statistics",
                ),
                *sinks.FILES,
            ),
        ),
        queue(
            "results",
            "The results as messages of JSON, by the options of a write.",
            use="write",
            optional=True,
            begun=True,
            example='topic = "statistics"',
        ),
        queue(
            "hot",
            "What is hot, as messages of JSON.",
            use="write",
            optional=True,
            example='topic = "hot"',
        ),
        SPARK,
    ),
    check=check,
    build=build,
    finish=finish,
)
