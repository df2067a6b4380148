"""``replay``: puts messages of Parquet or ``.dmsq`` files into a queue, filtered and paced."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import NoSuchQueue
from shmq.spark.jobs import values
from shmq.spark.jobs.config import Config, Key, Table
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.job import Batch
from shmq.spark.jobs.progress import Progress
from shmq.spark.jobs.rate_limit import RateLimit
from shmq.spark.jobs.selection import Selection
from shmq.spark.jobs.tables import SPARK, queue, rows
from shmq.spark.queue import kind
from shmq.spark.shared import options
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import BATCH, WRITE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOB"]

#: Rows of a batch if no rate is set.
_UNHURRIED: Final = 100_000

#: The columns that a sink uses; others in the files are dropped.
_KEPT: Final = (
    "value", "key", "group", "headers", "priority", "delay", "ttl", "dedupe_id", "codec",
    "correlation_id", "reply_to", "topic", "queue",
)  # fmt: skip

#: The columns that order the messages, as far as the files have them.
_ORDER: Final = ("timestamp", "topic", "offset")

_TOP: Final = Table(
    name="",
    about="",
    keys=(
        Key(
            name="checkpoint",
            about="Where it keeps what is to be replayed, and how far it is. One for each replay.",
            check=values.path,
            required=True,
            example="replayed",
        ),
        Key(
            name="rate",
            about="Rows a second, at most; as many as the queue takes without it.",
            check=values.number(0.001, 1e9),
            example=1000,
        ),
        Key(
            name="every",
            about="How often a batch is put, with a rate.",
            check=values.seconds(0.1, 3600),
            default=1.0,
            example="1s",
        ),
    ),
)

_SELECT: Final = Table(
    name="select",
    about="Which rows; all of them without it.",
    keys=(
        Key(
            name="since",
            about="Put then or later.",
            check=values.moment,
            example="2026-01-31T12:00:00Z",
        ),
        Key(
            name="until",
            about="Put before that.",
            check=values.moment,
            example="2026-02-01",
        ),
        Key(
            name="where",
            about="A condition on the columns, in Spark's SQL.",
            check=values.text,
            example="topic = 'orders' and priority > 0",
        ),
    ),
)


def _check(config: Config) -> None:
    for name in config["sink"]["options"]:
        if name.lower() in {"publisher", "batch", "staged"}:
            raise config.wrong(f"{name!r} in [sink] is what replay sets itself: leave it out")
    select = config["select"]
    since, until = select["since"], select["until"]
    if since is not None and until is not None and since >= until:
        raise config.wrong(f"since = {since} in [select] must be before until = {until}")


def run(
    session: SparkSession,
    config: Config,
    report: Callable[[Progress], None],
    stopping: Callable[[], bool],
) -> None:
    """Put the selected rows into the queue, batch after batch, each once."""
    top, sink = config[""], config["sink"]["options"]
    folder = Folder(session, top["checkpoint"])
    rate: float | None = top["rate"]
    size = _UNHURRIED if rate is None else max(1, round(rate * top["every"]))
    selection = Selection.of(folder, _asked(config))
    portions = selection.portions(lambda: _selected(session, config), size)
    done = selection.done
    progress = Progress(backlog=sum(portion.rows for portion in portions[done:]))
    report(progress)
    rate_limit = RateLimit(rate)
    for number, portion in enumerate(portions[done:], done):
        if not rate_limit.wait(portion.rows, stopping):
            return
        began = time.monotonic()
        session.read.parquet(selection.rows_of(portion)).write.format("shmq").mode(
            "append"
        ).options(**sink, publisher=selection.publisher, batch=number).save()
        selection.note(number)
        progress = _after(progress, number, portion.rows, time.monotonic() - began)
        report(progress)
    selection.finish(lambda: _forget(session, selection, sink))


def _after(progress: Progress, number: int, rows: int, seconds: float) -> Progress:
    return dataclasses.replace(
        progress,
        batch=number,
        rows=progress.rows + rows,
        rate=rows / seconds,
        backlog=(progress.backlog or 0) - rows,
        seconds=seconds,
    )


def _asked(config: Config) -> dict[str, Any]:
    """The configuration that identifies this replay, without secrets."""
    source, select, sink = config["source"], config["select"], config["sink"]["options"]
    return {
        "format": source["format"],
        "path": source["path"],
        "options": dict(source["options"]),
        "since": _text(select["since"]),
        "until": _text(select["until"]),
        "where": select["where"],
        "url": sink.get("url"),
        "topic": sink.get("topic") or sink.get("queue"),
    }


def _text(moment: dt.datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(dt.UTC).isoformat()


def _selected(session: SparkSession, config: Config) -> DataFrame:
    """The selected rows, in order. Raises InvalidOption for an impossible selection."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - heavy
    from pyspark.sql import functions  # noqa: PLC0415

    source, select = config["source"], config["select"]
    given = {} if source["format"] == "parquet" else {"includeHeaders": "true"}
    reader = session.read.format(source["format"]).options(**given, **source["options"])
    found = reader.load(source["path"])
    if "timestamp" not in found.columns and (select["since"] or select["until"]):
        raise config.wrong(
            f"[select] has a time, and {source['path']} has no column timestamp: it has "
            f"{', '.join(found.columns)}"
        )
    if select["since"] is not None:
        found = found.where(functions.col("timestamp") >= functions.lit(select["since"]))
    if select["until"] is not None:
        found = found.where(functions.col("timestamp") < functions.lit(select["until"]))
    if select["where"] is not None:
        try:
            found = found.where(select["where"])
        except AnalysisException as error:
            line = str(error).splitlines()[0]
            raise config.wrong(f"where = {select['where']!r} in [select]: {line}") from error
    order = [name for name in _ORDER if name in found.columns]
    if order:
        found = found.orderBy(*order)
    return found.select(*(name for name in _KEPT if name in found.columns))


def _forget(session: SparkSession, selection: Selection, sink: Mapping[str, str]) -> None:
    """Remove the records by which the queues know the batches that they have."""
    chosen = options.parse(kind.OPTIONS, sink, WRITE, form="shmq", refused=kind.REFUSED)
    topic = chosen["topic"] or chosen["queue"]
    names = [topic] if topic else selection.topics(session)
    with Address.of(chosen).connect() as broker:
        for name in names:
            with contextlib.suppress(NoSuchQueue), broker.queue(name) as target:
                target.staged_publisher(selection.publisher).discard()


JOB: Final = Batch(
    name="replay",
    about="Put messages from Parquet or .dmsq files in a queue.",
    tables=(
        _TOP,
        rows(
            "source",
            'The files: a directory of .dmsq files, with the options of format("dmsq"), or '
            "Parquet.",
            use=BATCH,
            formats=("dmsq", "parquet"),
            example='queue = "orders"',
        ),
        _SELECT,
        queue(
            "sink",
            'The queue, by the options of format("shmq"); without a topic, each message goes '
            "to that of its column topic.",
            use=WRITE,
            example='topic = "orders"',
        ),
        SPARK,
    ),
    check=_check,
    run=run,
)
