"""``replay``: puts messages of Parquet or ``.dmsq`` files into a queue, filtered and paced."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from shmq.errors import InvalidOption, NoSuchQueue
from shmq.spark.jobs import values
from shmq.spark.jobs.config import Config, Key, Table
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.job import ABOUT, Batch, Progress
from shmq.spark.jobs.tables import SPARK, queue, rows
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import BATCH, WRITE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from shmq.spark.jobs.filesystem import Folder

__all__ = ["JOB", "Portion", "RateLimit", "Selection"]

#: How often a wait checks whether to stop, in seconds.
_GLANCE: Final = 0.1


class RateLimit:
    """Allows at most ``rate`` rows per second; None: no limit.

    Time lost to slow batches is not made up for.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._due = clock()

    def wait(self, rows: int, stopping: Callable[[], bool]) -> bool:
        """Return True when this many rows may go, or False as soon as ``stopping()`` is true."""
        while not stopping():
            now = self._clock()
            if self._rate is None or now >= self._due:
                if self._rate is not None:
                    self._due = max(self._due, now - _GLANCE) + rows / self._rate
                return True
            time.sleep(min(_GLANCE, self._due - now))
        return False


_ASKED: Final = "asked.json"
_ROWS: Final = "rows"
_PORTIONS: Final = "portions.json"
_DONE: Final = "done"
_FINISHED: Final = "finished"

#: The name of a file that Spark writes, with the numbers of its task and of the file.
_FILE: Final = re.compile(r"part-(\d+)-.*?c(\d+)\.[^/]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Portion:
    """The rows of one batch: their file in the checkpoint, and their number."""

    file: str
    rows: int


class Selection:
    """The rows that a replay puts into a queue, and its progress."""

    def __init__(self, folder: Folder, publisher: str) -> None:
        self._folder = folder
        #: The publisher's name for its batches.
        self.publisher = publisher
        #: How many batches are known to be in the queue.
        self.done = max([int(name) + 1 for name in folder.names(_DONE)], default=0)

    @classmethod
    def of(cls, folder: Folder, asked: Mapping[str, Any]) -> Self:
        """The selection of the checkpoint, or a new one there.

        Raises :class:`~shmq.InvalidOption` for a checkpoint of another configuration.
        """
        folder.write_json(_ASKED, {"publisher": f"replay/{secrets.token_hex(8)}", "of": asked})
        kept = folder.read_json(_ASKED)
        for key, value in asked.items():
            if kept["of"].get(key) != value:
                raise InvalidOption(
                    f"the checkpoint {folder.uri} is of another replay: {key} was "
                    f"{kept['of'].get(key)!r}, and is {value!r}; name another checkpoint, or "
                    f"remove this one to begin anew"
                )
        return cls(folder, kept["publisher"])

    def portions(self, choose: Callable[[], DataFrame], size: int) -> list[Portion]:
        """The batches in order, of up to ``size`` rows; calls ``choose`` if none are chosen yet."""
        if _PORTIONS not in self._folder.names(""):
            self._folder.write_json(_PORTIONS, self._choose(choose(), size))
        return [Portion(*each) for each in self._folder.read_json(_PORTIONS)]

    def rows_of(self, portion: Portion) -> str:
        """The path by which Spark reads a portion's file."""
        return self._folder.path(f"{_ROWS}/{portion.file}")

    def topics(self, session: SparkSession) -> list[str]:
        """The queues that its rows name."""
        kept = session.read.parquet(self._folder.path(_ROWS))
        return sorted(row[0] for row in kept.select("topic").distinct().collect())

    def note(self, number: int) -> None:
        """Record that this batch, and all before it, are in the queue."""
        self._folder.create(f"{_DONE}/{number:012d}", "")
        if number:
            self._folder.remove(f"{_DONE}/{number - 1:012d}")
        self.done = number + 1

    def finish(self, forget: Callable[[], None]) -> None:
        """Once all batches are in the queue: call ``forget()`` and remove the rows here."""
        names = self._folder.names("")
        if _FINISHED not in names:
            self._folder.create(_FINISHED, "")
        if _ROWS in names:
            forget()
            self._folder.remove(_ROWS)

    def _choose(self, chosen: DataFrame, size: int) -> list[tuple[str, int]]:
        path = self._folder.path(_ROWS)
        chosen.write.mode("overwrite").option("maxRecordsPerFile", size).parquet(path)
        kept = chosen.sparkSession.read.schema(chosen.schema).parquet(path)
        counted = kept.groupBy("_metadata.file_name").count().collect()
        return sorted(((row[0], row[1]) for row in counted), key=_place)


def _place(portion: tuple[str, int]) -> tuple[int, int]:
    """The file's place in the order of the rows."""
    found = _FILE.fullmatch(portion[0])
    assert found is not None, f"Spark has another name for its files: {portion[0]}"
    return int(found[1]), int(found[2])


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
            about="The folder for the selected rows and the progress. One for each replay.",
            check=values.path,
            required=True,
            example="replayed",
        ),
        Key(
            name="rate",
            about="The most rows per second; without it, as many as the queue takes.",
            check=values.number(0.001, 1e9),
            example=1000,
        ),
        Key(
            name="every",
            about="How often a batch is put, if there is a rate.",
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
    every = {"columns": "all", "includeHeaders": "true"}
    given = {} if source["format"] == "parquet" else every
    reader = session.read.format(source["format"]).options(**{**given, **source["options"]})
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
    chosen = QUEUE.parse(sink, WRITE)
    topic = chosen["topic"] or chosen["queue"]
    names = [topic] if topic else selection.topics(session)
    with Address.of(chosen).connect() as broker:
        for name in names:
            with contextlib.suppress(NoSuchQueue), broker.queue(name) as target:
                target.staged_publisher(selection.publisher).discard()


JOB: Final = Batch(
    name="replay",
    about=ABOUT["replay"],
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
