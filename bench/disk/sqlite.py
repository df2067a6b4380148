"""SQLite with synchronous=FULL and a write-ahead log, through Python's sqlite3."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bench import bodies
from bench.disk import flushes, folder
from bench.disk.figures import MEDIAN, SIZE, TAIL
from bench.disk.timing import percentiles
from bench.machine import now
from bench.row import Contestant
from bench.stage import Failed, Side, Stage, together

INSERT = "INSERT INTO queue (body) VALUES (?)"


class Sqlite(Contestant):
    """A number of rows per transaction, in its own process."""

    def __init__(self, label: str, batch: int) -> None:
        self.label = label
        self.batch = batch
        self.note = f"SQLite {sqlite3.sqlite_version}, journal_mode=WAL"
        self.messages = 16 * batch

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return folder.missing()

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        while (rate := self.turn()["rate"]) * seconds / 4 > self.messages:
            self.messages *= 4
        self.messages = max(1, int(rate * seconds) // self.batch) * self.batch

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        with folder.scratch_folder() as where:
            side = Side(_insert, where / "file.db", self.messages, self.batch, core=None)
            with flushes.at_least(self.messages // self.batch):
                (figures,) = together([side])
            _look(where / "file.db", self.messages)
        found: dict[str, float] = figures
        return found


def _insert(stage: Stage, path: Path, messages: int, batch: int) -> dict[str, float]:
    stage.meet()
    sent = bodies.make(SIZE)
    rows = [(sent[number % len(sent)],) for number in range(messages)]
    taken = []
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=FULL")
        base.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        begun = before = now()
        for first in range(0, messages, batch):
            base.execute("BEGIN")
            base.executemany(INSERT, rows[first : first + batch])
            base.execute("COMMIT")
            after = now()
            taken.append(after - before)
            before = after
    median, tail = percentiles(taken)
    return {"rate": messages * 1e9 / (before - begun), MEDIAN.key: median, TAIL.key: tail}


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
