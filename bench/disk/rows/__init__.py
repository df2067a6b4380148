"""The rows on disk, in the order of their table: one file per kind of work."""

from __future__ import annotations

from collections.abc import Callable

from bench.disk.rows import confirmed, journal, processes, recovery, snapshot, streamed
from bench.row import Row

DISK: tuple[Callable[[], Row], ...] = (
    confirmed.row,
    confirmed.producers_row,
    processes.one_row,
    processes.eight_row,
    processes.many_row,
    confirmed.batch_row,
    journal.row,
    journal.kib_row,
    snapshot.row,
    recovery.row,
    streamed.row,
    streamed.replay_row,
)
