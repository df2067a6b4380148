"""A durable stream, written and read back."""

from __future__ import annotations

from bench.disk.figures import BANDWIDTH
from bench.disk.limits import Sequential
from bench.disk.streamed import LOT, THREADS, Appended, Replayed
from bench.row import RATE, Bar, Row, at_least, times

#: Bytes of a record, and the calls of a turn.
SIZE, LOTS = 1024, 32


def row() -> Row:
    """1 KiB, each call confirmed on disk, and the same bytes written by a loop in C."""
    ours = Appended("shmq append_many, confirm=disk", SIZE, LOTS)
    limit = Sequential(LOTS * LOT * SIZE)
    # One call of each thread in a sync.
    as_often = Sequential(LOTS * LOT * SIZE, THREADS * LOT * SIZE)
    return Row(
        key="disk-stream",
        title="A durable stream, records of 1 KiB, each call answered once it is on disk",
        contestants=[ours, limit, as_often],
        figures=[BANDWIDTH],
        bars=[
            times(ours.label, limit.label, 0.85, BANDWIDTH.key),
            Bar(ours.label, (as_often.label,), key=BANDWIDTH.key),
        ],
        limit="the copy into the page cache, the checksum, and the confirmations between two syncs",
        share=2.0,
    )


def replay_row() -> Row:
    """Small records and large ones, from the files."""
    small = Replayed("shmq, records of 64 B", 64, 1024)
    large = Replayed("shmq, records of 16 KiB", 16384, 16)
    return Row(
        key="disk-replay",
        title="A durable stream is read from its files",
        contestants=[small, large],
        figures=[RATE, BANDWIDTH],
        bars=[
            at_least(small.label, 2e6),
            at_least(large.label, 1000, BANDWIDTH.unit, BANDWIDTH.key),
        ],
        limit="checking the files, which are in the page cache, and a copy of each value",
    )
