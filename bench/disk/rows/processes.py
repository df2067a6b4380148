"""Messages confirmed on disk, one at a time, by Python processes with a connection each."""

from __future__ import annotations

from bench.disk.confirmed import Confirmed
from bench.disk.figures import MEDIAN, SIZE
from bench.disk.limits import GroupCommit
from bench.disk.processes import Processes
from bench.disk.stores import Postgres, Redis, Sqlite
from bench.row import RATE, Row, beside, times

#: Seconds of a turn: a process that waits for SQLite's lock sleeps up to 0.1 s.
TURN = 0.2


def one_row() -> Row:
    """A single process."""
    return _row("disk-1-process", 1, "one process", 1)


def eight_row() -> Row:
    """As many as a small service has."""
    return _row("disk-8-processes", 8, "8 processes", 3)


def many_row() -> Row:
    """As many as a large service has."""
    return _row("disk-64-processes", 64, "64 processes", 4)


def _row(key: str, processes: int, text: str, least: float) -> Row:
    ours = Confirmed("shmq put, confirm=disk", processes)
    limit = GroupCommit("C, group commit", processes, "append")
    over_zeros = GroupCommit(
        "C, the same over zeros that are on disk", processes, "overwrite", "for information"
    )
    peers = [
        Processes("redis-py LPUSH, appendfsync=always", Redis, processes),
        Processes("sqlite3 INSERT, synchronous=FULL", Sqlite, processes),
        Processes("psycopg INSERT, PostgreSQL", Postgres, processes),
    ]
    return Row(
        key=key,
        title=f"Put, {SIZE} B, answered once it is on disk, {text}, one at a time each, in Python",
        contestants=[ours, limit, over_zeros, *peers],
        figures=(RATE, MEDIAN),
        bars=[
            times(ours.label, [peer.label for peer in peers], least),
            times(ours.label, limit.label, 0.5),
            beside(ours.label, over_zeros.label),
        ],
        turn=TURN,
        limit="a wake-up of each process, its next call in Python, and the writer's commit",
    )
