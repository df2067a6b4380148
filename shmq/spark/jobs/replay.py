"""``replay``: puts messages of files into a queue, or into any format, filtered and paced."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from msgspec import Meta

from shmq.errors import DamagedFile, InvalidOption, NoSuchQueue
from shmq.spark.jobs import sinks
from shmq.spark.jobs.config import Base, Table, key
from shmq.spark.jobs.endpoints import TOPIC, BatchSource, Sink
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.job import Batch, Progress
from shmq.spark.jobs.values import Location, Moment, Seconds
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared.address import Address
from shmq.spark.shared.columns import QUEUE_SINK
from shmq.spark.shared.options import WRITE
from shmq.spark.shared.spark_error import describe_spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How often a wait checks whether to stop, in seconds.
_GLANCE: Final = 0.1


class RateLimit:
    """Allows at most ``rate`` rows per second; None: no limit.

    Time lost to slow batches is not made up for.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate or math.inf
        self._clock = clock
        self._due = clock()

    def wait(self, rows: int, stopping: Callable[[], bool]) -> bool:
        """Return True when this many rows may go, or False as soon as ``stopping()`` is true."""
        while not stopping():
            now = self._clock()
            if now >= self._due:
                self._due = max(self._due, now - _GLANCE) + rows / self._rate
                return True
            time.sleep(min(_GLANCE, self._due - now))
        return False


_ASKED: Final = "asked.json"
_ROWS: Final = "rows"
_PORTIONS: Final = "portions.json"
_DONE: Final = "done.json"

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
        #: How many batches are known to be in the sink.
        self.done: int = folder.read_json(_DONE) if folder.exists(_DONE) else 0
        if type(self.done) is not int or self.done < 0:
            raise DamagedFile(folder.path(_DONE), 0, "it is not a number of batches")

    @classmethod
    def of(cls, folder: Folder, asked: Mapping[str, Any]) -> Self:
        """The selection of the checkpoint, or a new one there.

        Raises :class:`~shmq.InvalidOption` for a checkpoint of another configuration, and
        :class:`~shmq.DamagedFile`.
        """
        if not folder.exists(_PORTIONS):  # nothing was chosen, so nothing was put
            name = f"replay-{secrets.token_hex(8)}"
            folder.write_json(_ASKED, {"publisher": name, "of": asked})
        kept = folder.read_json(_ASKED)
        for name, value in asked.items():
            if kept["of"].get(name) != value:
                raise InvalidOption(
                    f"the checkpoint {folder.uri} is of another replay: {name} was "
                    f"{kept['of'].get(name)!r}, and is {value!r}; name another checkpoint, or "
                    f"remove this one to start again"
                )
        return cls(folder, kept["publisher"])

    def portions(self, choose: Callable[[], DataFrame], size: int) -> list[Portion]:
        """The batches in order, of up to ``size`` rows; calls ``choose`` if none are chosen yet."""
        if not self._folder.exists(_PORTIONS):
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
        """Record that this batch, and all before it, are in the sink."""
        self.done = number + 1
        self._folder.write_json(_DONE, self.done)

    def finish(self, forget: Callable[[], None]) -> None:
        """Once all batches are in the sink: call ``forget()`` and remove the rows here."""
        if self._folder.exists(_ROWS):
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

#: The columns that a queue or stream takes; others in the files are dropped.
_KEPT: Final = frozenset(column.name for column in QUEUE_SINK)

#: The columns that order the messages, as far as the files have them.
_ORDER: Final = ("timestamp", "topic", "offset")


class Select(Table, frozen=True, kw_only=True):
    """Which rows; all of them without it."""

    since: Annotated[Moment | None, key("Put then or later.", "2026-01-31T12:00:00Z")] = None
    until: Annotated[Moment | None, key("Put before that.", "2026-02-01")] = None
    where: Annotated[
        str | None,
        key("A condition on the columns, in Spark's SQL.", "topic = 'orders' and priority > 0"),
    ] = None


class Files(BatchSource, frozen=True, kw_only=True):
    """Where the rows are."""

    format: Annotated[str, key("The format of the rows: dmsq, or any that Spark reads.")] = "dmsq"


class Replay(Base, frozen=True, kw_only=True):
    """The file of the job."""

    checkpoint: Annotated[
        Location,
        key("The folder for the selected rows and the progress. One for each replay.", "replayed"),
    ]
    rate: Annotated[
        Annotated[float, Meta(ge=0.001, le=1e9)] | None,
        key("The most rows per second; without it, as many as the sink takes.", 1000),
    ] = None
    every: Annotated[Seconds, key("How often a batch is put, if there is a rate.", "1s")] = Seconds(
        1
    )
    source: Annotated[Files, key("The files.", {"path": "data", "options": {"queue": "orders"}})]
    select: Annotated[Select, key("Which rows; all of them without it.")] = Select()
    sink: Annotated[
        Sink,
        key(
            "Where they go; a queue without a topic among the options: each message goes to that "
            "of its column topic.",
            TOPIC,
        ),
    ]

    def check(self) -> None:
        if self.source.path is None and self.source.format == "dmsq":
            raise InvalidOption("'path' is missing in [source]: the folder of the files")
        if self.every < _GLANCE:
            raise InvalidOption(f"every = {self.every} must be {_GLANCE} s or more")
        for name in self.sink.options:
            if name.lower() in {"publisher", "batch", "staged"}:
                raise InvalidOption(f"{name!r} in [sink.options] is what replay sets: leave it out")
        since, until = self.select.since, self.select.until
        if since is not None and until is not None and since.at >= until.at:
            raise InvalidOption(f"since = {since.at} in [select] must be before until = {until.at}")

    @property
    def has_sql(self) -> bool:
        return self.select.where is not None

    def check_sql(self, session: SparkSession) -> None:
        _select(session, self)


def run(
    session: SparkSession,
    config: Replay,
    report: Callable[[Progress], None],
    stopping: Callable[[], bool],
) -> None:
    """Put the selected rows into the sink, batch after batch."""
    folder = Folder(session, config.checkpoint)
    rate = config.rate
    size = _UNHURRIED if rate is None else max(1, round(rate * config.every))
    selection = Selection.of(folder, _identify(config))
    portions = selection.portions(lambda: _select(session, config), size)
    put = sinks.of(session, config.sink, "rows")
    done = selection.done
    progress = Progress(backlog=sum(portion.rows for portion in portions[done:]))
    report(progress)
    rate_limit = RateLimit(rate)
    for number, portion in enumerate(portions[done:], done):
        if not rate_limit.wait(portion.rows, stopping):
            return
        began = time.monotonic()
        rows = session.read.parquet(selection.rows_of(portion))
        put(rows, selection.publisher, number)
        selection.note(number)
        seconds = time.monotonic() - began
        progress = dataclasses.replace(
            progress,
            batch=number,
            rows=progress.rows + portion.rows,
            rate=portion.rows / seconds,
            backlog=(progress.backlog or 0) - portion.rows,
            seconds=seconds,
        )
        report(progress)
    selection.finish(lambda: _forget(session, selection, config.sink))


def _identify(config: Replay) -> dict[str, Any]:
    """The configuration that identifies this replay, without secrets."""
    source, select, sink = config.source, config.select, config.sink
    return {
        "format": source.format,
        "path": source.path,
        "options": dict(source.options),
        "since": None if select.since is None else select.since.at.isoformat(),
        "until": None if select.until is None else select.until.at.isoformat(),
        "where": select.where,
        "sink": [sink.format, sink.path],
        "url": sink.options.get("url"),
        "topic": sink.options.get("topic") or sink.options.get("queue"),
    }


def _select(session: SparkSession, config: Replay) -> DataFrame:
    """The selected rows, in order. Raises InvalidOption for an impossible selection."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - heavy
    from pyspark.sql import functions  # noqa: PLC0415

    source, select = config.source, config.select
    more = {"includeHeaders": "true"} if source.format in {"dmsq", "shmq"} else {}
    found = source.read(session, **more)
    if "timestamp" not in found.columns and (select.since or select.until):
        raise InvalidOption(
            f"[select] has a time, and {source.path} has no column timestamp: it has "
            f"{', '.join(found.columns)}"
        )
    if select.since is not None:
        found = found.where(functions.col("timestamp") >= functions.lit(select.since.at))
    if select.until is not None:
        found = found.where(functions.col("timestamp") < functions.lit(select.until.at))
    if select.where is not None:
        try:
            found = found.where(select.where)
        except AnalysisException as error:
            raise InvalidOption(
                f"where = {select.where!r:.200} in [select]: {describe_spark_error(error)}"
            ) from error
    order = [name for name in _ORDER if name in found.columns]
    if order:
        found = found.orderBy(*order)
    if config.sink.format != "shmq":
        return found
    return found.select(*(name for name in found.columns if name in _KEPT))


def _forget(session: SparkSession, selection: Selection, sink: Sink) -> None:
    """Remove the records by which the queues know the batches that they have."""
    if sink.format != "shmq":
        return
    chosen = QUEUE.parse(sink.options, WRITE)
    topic = chosen["topic"] or chosen["queue"]
    names = [topic] if topic else selection.topics(session)
    with Address.of(chosen).connect() as broker:
        for name in names:
            with contextlib.suppress(NoSuchQueue), broker.queue(name) as target:
                target.staged_publisher(f"{selection.publisher}/rows").discard()


JOB: Final = Batch(name="replay", config=Replay, run=run)
