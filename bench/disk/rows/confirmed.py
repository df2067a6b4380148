"""Messages that are answered once they are on disk: one at a time, and 64."""

from __future__ import annotations

from bench.disk import peers
from bench.disk.figures import BATCH, MEDIAN, SIZE, TAIL
from bench.row import RATE, Row


def row() -> Row:
    """One producer, which waits for each."""
    return Row(
        key="disk-one",
        title=f"Put, {SIZE} B, answered once it is on disk, one producer, one at a time",
        contestants=[*peers.one_by_one(), *peers.raw_one()],
        figures=[RATE, MEDIAN, TAIL],
        limit="a write and a sync of the disk for each message",
    )


def many_row() -> Row:
    """64 producers that wait for each, and one that puts 64 at a time."""
    return Row(
        key="disk-many",
        title=f"Put, {SIZE} B, answered once it is on disk, {BATCH} producers or {BATCH} at a time",
        contestants=[*peers.many(), *peers.raw_many()],
        figures=[RATE, MEDIAN, TAIL],
        limit="a sync of the disk for what came while the one before it ran",
    )
