"""``transform``: a user's function between a source and a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import structs

from shmq.errors import InvalidOption
from shmq.spark.jobs import functions, sinks
from shmq.spark.jobs.config import StreamBase, Table, key
from shmq.spark.jobs.endpoints import SUBSCRIBED, TOPIC, Sink, StreamSource
from shmq.spark.jobs.job import SingleBatch, Stream, counted, each_batch
from shmq.spark.jobs.values import FunctionName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from shmq.spark.jobs.sinks import Put


class Decode(Table, frozen=True, kw_only=True):
    """How bodies become columns."""

    schema: Annotated[
        str, key("The fields, as SQL has columns.", "id BIGINT NOT NULL, name STRING, at TIMESTAMP")
    ]
    codec: Annotated[
        Literal["message", "json", "msgpack"],
        key("The codec of the bodies: json, msgpack, or message: each message's own."),
    ] = "message"
    into: Annotated[
        str | None, key("The column for the fields; without it each field is a column.", "body")
    ] = None
    bad: Annotated[
        Literal["fail", "drop", "route"],
        key(
            "What happens to bodies that do not match: fail: the job ends; drop: they are left "
            "out and counted; route: they go to [bad]."
        ),
    ] = "fail"


class Transform(Table, frozen=True, kw_only=True):
    """What to do with the rows."""

    function: Annotated[
        FunctionName,
        key(
            'The function, as "module:function": it takes a DataFrame and returns one. This one '
            "leaves the rows as they are.",
            "shmq.spark.jobs.functions:unchanged",
        ),
    ]
    mode: Annotated[
        Literal["append", "update"],
        key("What a function that aggregates gives: append: final rows; update: changes."),
    ] = "append"


class TransformFile(StreamBase, frozen=True, kw_only=True):
    """The file of the job."""

    source: Annotated[
        StreamSource,
        key("Where rows come from; files of durable queues (dmsq) are read once.", SUBSCRIBED),
    ]
    decode: Annotated[
        Decode | None, key("Bodies as columns, in addition to the message's own.")
    ] = None
    transform: Annotated[Transform, key("What to do with the rows.")]
    sink: Annotated[Sink, key("Where they go.", TOPIC)]
    bad: Annotated[Sink | None, key("Where bodies go that cannot be decoded.", TOPIC)] = None

    def check(self) -> None:
        """Check that the function loads, and that bad bodies have a sink if and only if needed."""
        functions.load(self.transform.function)
        routed = self.decode is not None and self.decode.bad == "route"
        if routed and self.bad is None:
            raise InvalidOption('bad = "route" in [decode] takes a table [bad]: say there where to')
        if self.bad is None:
            return
        if not routed:
            raise InvalidOption('a table [bad] takes bad = "route" in [decode]')
        if self.bad.place == self.sink.place:
            raise InvalidOption("[bad] and [sink] are the same place: give each its own")

    @property
    def has_sql(self) -> bool:
        return self.decode is not None

    def check_sql(self, session: SparkSession) -> None:  # noqa: ARG002 - Spark has only one
        from shmq.spark.shared.body_columns import schema_of  # noqa: PLC0415 - with Spark alone

        assert self.decode is not None
        schema_of(self.decode.schema)


def build(
    session: SparkSession, config: TransformFile, stop_file: str
) -> DataStreamWriter | SingleBatch:
    """The query from the source through the function to the sink."""
    found = config.source.read(session, stop_file)
    made, put = _make(session, config, found)
    if not found.isStreaming:
        return SingleBatch(made, put)
    return each_batch(made, put).outputMode(config.transform.mode)


def _make(session: SparkSession, config: TransformFile, found: DataFrame) -> tuple[DataFrame, Put]:
    name = config.transform.function
    put = sinks.of(session, config.sink, "rows")
    if config.decode is None:
        return functions.apply(name, found), put
    from shmq.spark.shared import body_columns  # noqa: PLC0415 - with Spark alone

    table = structs.asdict(config.decode)
    if config.bad is None:
        return functions.apply(name, body_columns.good(found, table)), put
    return _route(session, config, found, table)


def _route(
    session: SparkSession, config: TransformFile, found: DataFrame, table: dict[str, Any]
) -> tuple[DataFrame, Put]:
    """Good and bad rows as one stream, as a query has only one sink, and the put that splits it."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    from shmq.spark.shared import body_columns  # noqa: PLC0415

    assert config.bad is not None
    tagged = body_columns.tagged(found, table)
    rows = body_columns.without_bad(counted(tagged) if found.isStreaming else tagged)
    good = functions.apply(config.transform.function, rows)
    bad = body_columns.bad(found, tagged)
    if config.bad.format == "shmq":
        bad = body_columns.in_headers(bad)
    none = sql.lit(None)
    kinds = good.schema, bad.schema
    made = good.select(sql.struct("*").alias("good"), none.cast(kinds[1]).alias("bad")).unionByName(
        bad.select(none.cast(kinds[0]).alias("good"), sql.struct("*").alias("bad"))
    )
    ends = {
        "good": sinks.of(session, config.sink, "rows"),
        "bad": sinks.of(session, config.bad, "bad"),
    }

    def put(batch: DataFrame, query: str, number: int) -> None:
        batch.persist()
        try:
            for name, end in ends.items():
                end(batch.where(sql.col(name).isNotNull()).select(f"{name}.*"), query, number)
        finally:
            batch.unpersist()

    return made, put


JOB: Final = Stream(name="transform", config=TransformFile, build=build)
