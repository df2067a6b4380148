"""SQLite with synchronous=FULL and a write-ahead log, through Python's sqlite3."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bench import bodies
from bench.disk import flushes, folder
from bench.disk.figures import MEDIAN, SIZE
from bench.disk.timing import share
from bench.machine import now
from bench.row import SECONDS, Contestant, Turn
from bench.stage import Cast, Failed, Side, Stage

INSERT = "INSERT INTO queue (body) VALUES (?)"


class Sqlite(Contestant):
    """A number of rows per transaction, in its own process."""

    most = 1000

    def __init__(self, label: str, batch: int) -> None:
        self.label = label
        self.batch = batch
        self.note = f"SQLite {sqlite3.sqlite_version}, journal_mode=WAL"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return folder.missing()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        inserted = 0
        with folder.scratch_folder() as where:
            path = where / "file.db"
            with Cast([Side(_insert, path, self.batch, core=None)]) as cast:

                def turn(batches: int) -> dict[str, float]:
                    nonlocal inserted
                    inserted += batches * self.batch
                    with flushes.at_least(batches):
                        (taken,) = cast.turn(batches)
                    seconds = sum(taken) / 1e9
                    return {
                        "rate": batches * self.batch / seconds,
                        MEDIAN.key: share(taken, 0.5),
                        SECONDS: seconds,
                    }

                yield turn
            _look(path, inserted)


def _insert(stage: Stage, path: Path, batch: int) -> None:
    """Insert batches in each turn; it tells how long each took in ns."""
    endless = itertools.cycle([(body,) for body in bodies.make(SIZE)])
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=FULL")
        base.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        for batches in stage.turns():
            taken = []
            for _ in range(batches):
                rows = list(itertools.islice(endless, batch))
                before = now()
                base.execute("BEGIN")
                base.executemany(INSERT, rows)
                base.execute("COMMIT")
                taken.append(now() - before)
            stage.tell(taken)


def _look(path: Path, messages: int) -> None:
    """Check that all inserted rows are there, whole and in order."""
    sent = bodies.make(SIZE)
    with closing(sqlite3.connect(path)) as base:
        found = [body for (body,) in base.execute("SELECT body FROM queue ORDER BY id")]
    if len(found) != messages:
        raise Failed(f"{len(found)} rows of {messages} are there")
    for first in range(0, messages, len(sent)):
        part = found[first : first + len(sent)]
        bodies.check(part, sent[: len(part)])
