"""Readers of a table of files that know nothing of Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.dataset as ds

from tests.prove.spark.jobs.tools import current
from tests.support.waiting import eventually

#: The column in which no two rows are the same.
KEY = "offset"


def by_duckdb(folder: Path) -> list[int]:
    """The keys of all rows, through DuckDB, as docs/integrate/pipeline.md reads a table."""
    with duckdb.connect() as connection:
        connection.execute(
            f"SET VARIABLE version = (SELECT path FROM read_json('{folder}/_current.json'))"
        )
        rows = f"read_parquet('{folder}/' || getvariable('version') || '/**/*.parquet')"
        return [row[0] for row in connection.execute(f'SELECT "{KEY}" FROM {rows}').fetchall()]


def by_pyarrow(folder: Path) -> list[int]:
    """The keys of all rows, through pyarrow."""
    table = ds.dataset(current(folder), format="parquet", partitioning="hive")
    found: list[int] = table.to_table(columns=[KEY]).column(KEY).to_pylist()
    return found


def by_pandas(folder: Path) -> list[int]:
    """The keys of all rows, through pandas."""
    found: list[int] = pd.read_parquet(current(folder), columns=[KEY])[KEY].tolist()
    return found


def read_by_all(folder: Path) -> list[int]:
    """The keys of the table in order: each reader has to find the same."""
    found = [sorted(reader(folder)) for reader in (by_duckdb, by_pyarrow, by_pandas)]
    assert found[0] == found[1] == found[2]
    return found[0]


class Watch:
    """What readers find from one moment to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: How many times each reader has read, and how many rows there were at last.
        self.reads = 0
        self.rows = 0
        self.wrong: list[str] = []

    def look(self) -> None:
        """Read with DuckDB and pyarrow: no row may be there twice, or be gone again."""
        if not (self._folder / "_current.json").exists():
            return
        for reader in (by_duckdb, by_pyarrow):
            found = reader(self._folder)
            if len(found) != len(set(found)):
                self.wrong.append(f"{reader.__name__}: {len(found) - len(set(found))} doubled")
            if len(found) < self.rows:
                self.wrong.append(f"{reader.__name__}: {self.rows - len(found)} gone")
            self.rows = max(self.rows, len(found))
        self.reads += 1

    def until(self, reads: int) -> None:
        """Return once each reader has read that many times."""
        eventually(lambda: self.reads >= reads or bool(self.wrong), "the table is read again")


@contextmanager
def watched(folder: Path) -> Iterator[Watch]:
    """Look at the table all the time, in a thread, within the block."""
    watch = Watch(folder)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.2):  # others need the processor, too
            try:
                watch.look()
            except Exception as error:
                watch.wrong.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()
