"""A durable stream, written and read back."""

from __future__ import annotations

from bench.disk.figures import BANDWIDTH
from bench.disk.snapshot import DISK, SHARE
from bench.disk.streamed import Appended, Replayed
from bench.row import RATE, Row, at_least


def row() -> Row:
    """1 KiB, each call confirmed on disk."""
    ours = Appended("shmq append_many, confirm=disk", 1024, 128)
    return Row(
        key="disk-stream",
        title="A durable stream, records of 1 KiB, each call answered once it is on disk",
        contestants=[ours],
        figures=[RATE, BANDWIDTH, DISK, SHARE],
        bars=[at_least(ours.label, 0.7, " of the disk's", SHARE.key)],
        limit="the disk",
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
            at_least(large.label, 1000, " MB/s", BANDWIDTH.key),
        ],
        limit="checking the files, which are in the page cache, and a copy of each value",
    )
