"""A snapshot of 256 MiB while a producer puts, compared with the disk's sequential bandwidth."""

from __future__ import annotations

from bench.disk.figures import BANDWIDTH
from bench.disk.snapshot import DISK, SHARE, STALL, WORST, Snapshot
from bench.row import Row, at_least, at_most

TOTAL = 256 << 20


def row() -> Row:
    """One contestant, which measures the disk around each of its snapshots."""
    ours = Snapshot(TOTAL)
    return Row(
        key="disk-snapshot",
        title="A snapshot of 256 MiB while a producer puts",
        contestants=[ours],
        figures=[BANDWIDTH, DISK, SHARE, STALL, WORST],
        bars=[
            at_most(ours.label, 5, STALL.unit, STALL.key),
            at_least(ours.label, 0.6, SHARE.unit, SHARE.key),
        ],
        limit="the disk; a put does not wait for it",
    )
