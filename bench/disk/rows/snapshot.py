"""A snapshot of 1 GiB while a producer puts, compared with the disk's sequential bandwidth."""

from __future__ import annotations

from bench.disk.figures import BANDWIDTH
from bench.disk.snapshot import DISK, SHARE, STALL, WORST, Snapshot
from bench.row import Row, at_least, at_most

TOTAL = 1 << 30


def row() -> Row:
    """One contestant, which measures the disk around each of its snapshots."""
    ours = Snapshot(TOTAL)
    return Row(
        key="disk-snapshot",
        title="A snapshot of 1 GiB while a producer puts",
        contestants=[ours],
        figures=[BANDWIDTH, DISK, SHARE, STALL, WORST],
        bars=[
            at_most(ours.label, 5, "ms", STALL.key),
            at_least(ours.label, 0.6, " of the disk's", SHARE.key),
        ],
        limit="the disk; a put does not wait for it",
    )
