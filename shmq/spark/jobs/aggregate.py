"""``aggregate``: counts, rates, sizes and waits per window of time, and the hot keys.

Spark's windows count, and Spark's watermark, the newest message's time less ``late``, closes
them. Spark drops a message whose window is closed already, and counts it only in groups; so the
same query carries the window and the keys of each message beside the closed windows, and each
batch counts the messages of windows that the watermark before it had passed: just those that
Spark has dropped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from shmq.errors import InvalidOption
from shmq.spark.jobs import sinks
from shmq.spark.jobs.config import StreamBase, Table, key
from shmq.spark.jobs.endpoints import FILES, SUBSCRIBED, TOPIC, FileSink, Sink, StreamSource
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.job import Stream, counted, each_batch
from shmq.spark.jobs.values import Names, Seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from shmq.spark.jobs.sinks import Put

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
_ENDS: Final = ("sink", "results", "hot")

#: The columns that make the folders of files: the day on which a window begins.
_FOLDERS: Final = ("date",)

#: The accuracy of percentiles: the rank is wrong by at most one in so many.
_ACCURACY: Final = 1000

#: A watermark that has passed nothing, in milliseconds.
_NO_WATERMARK: Final = -(1 << 50)

#: The column with a closed window's counts; null in the row of a message.
_CLOSED: Final = "closed"


_BY: Final = f'What to group by: {", ".join(_PLAIN)}, "header.NAME".'


class Keys(Names):
    """Names of what messages are grouped by."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Any, folder: Path) -> Keys:
        """The names, of which no two become the same column."""
        found = super().of(value, folder)
        if not all(name in _PLAIN or _HEADER.fullmatch(name) for name in found):
            raise ValueError(f'some of {", ".join(_PLAIN)} and "header.NAME"')
        if len({_name_column(name) for name in found}) < len(found):
            raise ValueError("names of which no two become the same column")
        return found


class Aggregate(Table, frozen=True, kw_only=True):
    """What to count, and how."""

    window: Annotated[Seconds, key("The length of a window of time.", "1m")] = Seconds(60)
    late: Annotated[
        Seconds,
        key("How much older than the newest message a message may be and still count.", "10m"),
    ] = Seconds(600)
    by: Annotated[Keys, key(_BY, ["queue", "group", "header.kind"])] = Keys(("queue",))
    hot: Annotated[
        Annotated[float, Meta(ge=1)],
        key("A key is hot above this many times the mean rate of its window.", 3),
    ] = 3.0
    until: Annotated[
        str | None,
        key("A column of files that says when a message was done, for its latency.", "acked_at"),
    ] = None


class AggregateFile(StreamBase, frozen=True, kw_only=True):
    """The file of the job."""

    source: Annotated[
        StreamSource, key("The messages: queues or streams, or an archive.", SUBSCRIBED)
    ]
    aggregate: Annotated[Aggregate, key("What to count, and how.")] = Aggregate()
    sink: Annotated[
        FileSink | None,
        key(
            "The results, as rows; for queues and streams, as JSON.",
            {"path": "statistics"},
            shown=True,
        ),
    ] = None
    results: Annotated[Sink | None, key("The results again, elsewhere.", TOPIC)] = None
    hot: Annotated[Sink | None, key("What is hot.", TOPIC)] = None

    def check(self) -> None:
        """Check that the results go somewhere, and that ``until`` is used only with files."""
        ends = [end for name in _ENDS if (end := getattr(self, name)) is not None]
        if not ends:
            raise InvalidOption(
                f"it needs one of the tables {', '.join(f'[{end}]' for end in _ENDS)}"
            )
        if len({end.place for end in ends}) < len(ends):
            raise InvalidOption("two of its sinks are the same place: give each its own")
        settings = self.aggregate
        if not settings.window >= 0.001:
            raise InvalidOption(f"window = {settings.window} in [aggregate] must be 1 ms or more")
        if settings.until is not None and self.source.format == "shmq":
            raise InvalidOption(
                "until in [aggregate] names a column of files: of queues, the latency is until the "
                "batch that took the message began"
            )


def build(session: SparkSession, config: AggregateFile, stop_file: str) -> DataStreamWriter:
    """The query from the source to all its sinks."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy, and an extra

    rows = _read(session, config, stop_file)
    closed = _select_closed(rows, config.aggregate)
    names = [column for column in closed.columns if column != _CLOSED]
    none = f.lit(None).cast(closed.schema[_CLOSED].dataType)
    messages = counted(rows).select(*names, none.alias(_CLOSED))
    return each_batch(closed.unionByName(messages), _put(session, config, names))


def _read(session: SparkSession, config: AggregateFile, stop_file: str) -> DataFrame:
    """The messages: their times, windows and keys, sizes and waits."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    source, settings = config.source, config.aggregate
    if source.format == "shmq":
        found = source.read(session, stop_file, columns=",".join(_list_needed(settings.by)))
        # The time of the batch, which stays the same when it runs again.
        done = f.current_timestamp()
    else:
        found = source.read(session, stop_file)
        done = f.col(settings.until) if settings.until else f.lit(None).cast("timestamp")
    return found.select(
        f.col("timestamp").alias("at"),
        f.window("timestamp", _format_interval(settings.window)).start.alias("window_start"),
        f.coalesce(f.octet_length("value"), f.lit(0)).cast("bigint").alias("bytes"),
        ((f.unix_micros(done) - f.unix_micros("timestamp")) / 1e6).alias("latency"),
        *(_make_key(name).alias(_name_column(name)) for name in settings.by),
    )


def _select_closed(rows: DataFrame, settings: Aggregate) -> DataFrame:
    """The windows that are closed, each with its start, its keys and its counts."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    keys = [_name_column(name) for name in settings.by]
    waits = f.percentile_approx("latency", [0.5, 0.99], _ACCURACY)
    window = f.window("at", _format_interval(settings.window))
    made = (
        rows.withWatermark("at", _format_interval(settings.late))
        .groupBy(window.alias("window"), *keys)
        .agg(
            f.count("*").alias("messages"),
            (f.count("*") / settings.window).alias("rate"),
            f.sum("bytes").alias("bytes"),
            f.avg("bytes").alias("bytes_mean"),
            f.max("bytes").alias("bytes_max"),
            f.avg("latency").alias("latency_mean"),
            waits[0].alias("latency_p50"),
            waits[1].alias("latency_p99"),
            f.max("latency").alias("latency_max"),
        )
    )
    counts = [name for name in made.columns if name not in ("window", *keys)]
    start = f.col("window.start").alias("window_start")
    return made.select(start, *keys, f.struct(*counts).alias(_CLOSED))


def _put(session: SparkSession, config: AggregateFile, names: list[str]) -> Put:
    """What splits a batch into results and what is hot, and writes them."""
    ends = {
        name: _end(session, sink, name)
        for name in _ENDS
        if (sink := getattr(config, name)) is not None
    }
    checkpoint = Folder(session, config.checkpoint)

    def put(batch: DataFrame, query: str, number: int) -> None:
        batch.persist()
        try:
            aggregated = _aggregate_rows(
                batch, names, config.aggregate, _get_passed(checkpoint, number)
            ).persist()
            for name, end in ends.items():
                end(
                    hot(aggregated, config.aggregate.hot) if name == "hot" else aggregated,
                    query,
                    number,
                )
            aggregated.unpersist()
        finally:
            batch.unpersist()

    return put


def _end(session: SparkSession, sink: Sink, name: str) -> Put:
    """What writes to a sink: messages of JSON to queues and streams, else rows."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    put = sinks.of(session, sink, name, _FOLDERS)
    if sink.format == "shmq":
        made = f.to_json(f.struct("*")).alias("value"), f.lit("json").alias("codec")
        return lambda aggregated, query, batch: put(aggregated.select(*made), query, batch)
    if sink.format in FILES and sink.partition_by in (None, _FOLDERS):
        date = f.to_date("window_start")
        return lambda aggregated, query, batch: put(
            aggregated.withColumn("date", date), query, batch
        )
    return put


def _get_passed(checkpoint: Folder, batch: int) -> int:
    """The watermark before a batch, in milliseconds: Spark has closed the windows up to it.

    Spark writes the watermark of a batch into its checkpoint before the batch runs, and drops
    messages by that of the batch before.
    """
    if not batch:
        return _NO_WATERMARK
    lines = checkpoint.read(f"offsets/{batch - 1}").splitlines()
    return int(json.loads(lines[1])["batchWatermarkMs"])


def _aggregate_rows(
    batch: DataFrame, names: list[str], settings: Aggregate, passed: int
) -> DataFrame:
    """The rows of both kinds: closed windows, and counts of late messages."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    nothing = f.lit(0).cast("bigint")
    length = f.make_dt_interval(secs=f.lit(settings.window).cast("decimal(18,6)"))
    end = (f.col("window_start") + length).alias("window_end")
    closed = batch.where(f.col(_CLOSED).isNotNull())
    gone = f.unix_micros(f.col("window_start") + length) <= passed * 1000
    late = batch.where(f.col(_CLOSED).isNull() & gone)
    late = late.groupBy(*names).agg(f.count("*").alias("late"))
    both = closed.select(*names, f"{_CLOSED}.*", nothing.alias("late")).unionByName(
        late.withColumn("messages", nothing), allowMissingColumns=True
    )
    first = ["messages", "late"]
    counts = [name for name in both.columns if name not in (*names, *first)]
    return both.select("window_start", end, *names[1:], *first, *counts)


def hot(aggregated: DataFrame, factor: float) -> DataFrame:
    """The closed windows with more than ``factor`` times the mean rate of all keys."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    mean = f.avg("rate").over(Window.partitionBy("window_start"))
    closed = aggregated.where(f.col("messages") > 0).drop("late").withColumn("mean_rate", mean)
    rows = closed.where(f.col("rate") > factor * f.col("mean_rate"))
    return rows.withColumn("times", f.col("rate") / f.col("mean_rate"))


def _list_needed(by: Keys) -> list[str]:
    keys = ["headers" if _HEADER.fullmatch(name) else _PLAIN[name] for name in by]
    return list(dict.fromkeys(["timestamp", "value", *keys]))


def _make_key(name: str) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    header = _HEADER.fullmatch(name)
    if header is None:
        return f.col(_PLAIN[name]).cast("string")
    alike = f.filter("headers", lambda each: each["key"] == header[1])
    return f.get(alike, f.lit(0))["value"].cast("string")


def _name_column(name: str) -> str:
    """The name of a key's column: ``header.a-b`` becomes ``header_a_b``."""
    return re.sub(r"\W", "_", name)


def _format_interval(seconds: float) -> str:
    return f"{round(seconds * 1_000_000)} microseconds"


JOB: Final = Stream(name="aggregate", config=AggregateFile, build=build)
