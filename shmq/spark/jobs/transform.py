"""``transform``: a user's function between a source and a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shmq.spark.jobs import functions, sinks, values
from shmq.spark.jobs.config import Config, Key, Table
from shmq.spark.jobs.job import ABOUT, Put, SingleBatch, Stream, each_batch
from shmq.spark.jobs.tables import SPARK, STREAM_TOP, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["JOB", "build", "finish"]

_TRANSFORM: Final = Table(
    name="transform",
    about="What to do with the rows.",
    keys=(
        Key(
            name="function",
            about='The function, as "module:function": it takes a DataFrame and returns one. '
            "This one leaves the rows as they are.",
            check=values.function,
            required=True,
            example="shmq.spark.jobs.functions:unchanged",
        ),
        Key(
            name="mode",
            about="What a function that aggregates gives: append: final rows; update: changes.",
            check=values.one_of("append", "update"),
            default="append",
        ),
    ),
)

_DECODE: Final = Table(
    name="decode",
    about="Bodies as columns, in addition to the message's own.",
    optional=True,
    keys=(
        Key(
            name="schema",
            about="The fields, as SQL has columns.",
            check=values.text,
            required=True,
            example="id BIGINT NOT NULL, name STRING, at TIMESTAMP",
        ),
        Key(
            name="codec",
            about="The codec of the bodies: json, msgpack, or message: each message's own.",
            check=values.one_of("message", "json", "msgpack"),
            default="message",
        ),
        Key(
            name="into",
            about="The column for the fields; without it each field is a column.",
            check=values.text,
            example="body",
        ),
        Key(
            name="bad",
            about="What happens to bodies that do not match: fail: the job ends; drop: they are "
            "left out and counted; route: they go to [bad].",
            check=values.one_of("fail", "drop", "route"),
            default="fail",
        ),
    ),
)

_PARTITIONS: Final = Key(
    name="partition_by",
    about="Files: the columns that make folders.",
    check=values.names,
    example=["carrier"],
)


def check(config: Config) -> None:
    """Check that the function loads, and that bad bodies have a sink if and only if needed."""
    functions.load(config["transform"]["function"])
    routed = "decode" in config and config["decode"]["bad"] == "route"
    if routed and "bad" not in config:
        raise config.wrong('bad = "route" in [decode] takes a table [bad]: say there where to')
    if "bad" in config and not routed:
        raise config.wrong('a table [bad] takes bad = "route" in [decode]')
    if routed and _place(config, "bad") == _place(config, "sink"):
        raise config.wrong("[bad] and [sink] are the same place: give each its own")


def build(session: SparkSession, config: Config) -> DataStreamWriter | SingleBatch:
    """The query from the source through the function to the sink."""
    found = _source(session, config)
    name = config["transform"]["function"]
    put: Put = sinks.of(session, config["sink"], "rows").add
    if "decode" not in config:
        made = functions.apply(name, found)
    elif "bad" not in config:
        from shmq.spark.shared import body_columns  # noqa: PLC0415 - with Spark alone

        made = functions.apply(name, body_columns.good(found, config["decode"]))
    else:
        made, put = _routed(session, config, found)
    if not found.isStreaming:
        return SingleBatch(made, put)
    return _writer(config, made, put)


def _writer(config: Config, made: DataFrame, put: Put) -> DataStreamWriter:
    sink = config["sink"]
    if sink["format"] == "shmq" and "bad" not in config:
        writer = made.writeStream.format("shmq").options(**sink["options"])
    else:
        writer = each_batch(made, put)
    return writer.outputMode(config["transform"]["mode"])


def _routed(session: SparkSession, config: Config, found: DataFrame) -> tuple[DataFrame, Put]:
    """Good and bad rows as one stream, as a query has only one sink, and the put that splits it."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    from shmq.spark.shared import body_columns  # noqa: PLC0415

    tagged = body_columns.tagged(found, config["decode"])
    good = functions.apply(config["transform"]["function"], body_columns.without_bad(tagged))
    bad = body_columns.bad(found, tagged)
    if config["bad"]["format"] == "shmq":
        bad = body_columns.in_headers(bad)
    none = sql.lit(None)
    kinds = good.schema, bad.schema
    made = good.select(sql.struct("*").alias("good"), none.cast(kinds[1]).alias("bad")).unionByName(
        bad.select(none.cast(kinds[0]).alias("good"), sql.struct("*").alias("bad"))
    )
    ends = {
        "good": sinks.of(session, config["sink"], "rows"),
        "bad": sinks.of(session, config["bad"], "bad"),
    }

    def put(batch: DataFrame, query: str, number: int) -> None:
        batch.persist()
        try:
            for name, end in ends.items():
                end.add(batch.where(sql.col(name).isNotNull()).select(f"{name}.*"), query, number)
        finally:
            batch.unpersist()

    return made, put


def finish(session: SparkSession, config: Config) -> None:
    """Merge the remaining small files."""
    for name in ("sink", "bad"):
        if name in config:
            sinks.of(session, config[name], name).rest()


def _source(session: SparkSession, config: Config) -> DataFrame:
    source = config["source"]
    form, path, options = source["format"], source["path"], source["options"]
    if form == "dmsq":
        reader = session.read.format(form).options(**{"columns": "all", **options})
        return reader.load(path) if path is not None else reader.load()
    if form == "shmq":
        return session.readStream.format(form).options(**{"columns": "all", **options}).load()
    stream = session.readStream.format(form).options(**options)
    return stream.schema(session.read.options(**options).parquet(path).schema).load(path)


def _place(config: Config, table: str) -> tuple[object, ...]:
    values = config[table]
    options = values["options"]
    return values["format"], values["path"], options.get("url"), options.get("topic")


JOB: Final = Stream(
    name="transform",
    about=ABOUT["transform"],
    tables=(
        STREAM_TOP,
        rows(
            "source",
            'Where rows come from: queues, by the options of format("shmq"), files that keep '
            "coming, or the files of durable queues, once.",
            use="stream",
            formats=("shmq", "parquet", "dmsq"),
            example='subscribe = "results"',
        ),
        _DECODE,
        _TRANSFORM,
        rows(
            "sink",
            'Where they go: a queue, by the options of format("shmq"), or files.',
            use="write",
            formats=("shmq", "parquet"),
            keys=(_PARTITIONS, *sinks.FILES),
            example='topic = "delays"',
        ),
        rows(
            "bad",
            "Where bodies go that cannot be decoded, as the sink.",
            use="write",
            formats=("shmq", "parquet"),
            keys=(_PARTITIONS, *sinks.FILES),
            optional=True,
            example='topic = "results.bad"',
        ),
        SPARK,
    ),
    check=check,
    build=build,
    finish=finish,
)
