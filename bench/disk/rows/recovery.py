"""How fast a queue is recovered from its journal."""

from __future__ import annotations

from bench.disk.figures import BANDWIDTH
from bench.disk.recovered import Recovered
from bench.row import RATE, Row, at_least

SMALL = Recovered("shmq, 1,000,000 messages of 128 B", 128, 1_000_000)
LARGE = Recovered("shmq, 512 messages of 1 MiB", 1 << 20, 512)


def row() -> Row:
    """Small messages and large ones, after the memory is lost."""
    return Row(
        key="disk-recovery",
        title="Recovery from the journal after the queue's memory is lost",
        contestants=[SMALL, LARGE],
        figures=[RATE, BANDWIDTH],
        bars=[
            at_least(SMALL.label, 1e6),
            at_least(LARGE.label, 500, BANDWIDTH.unit, BANDWIDTH.key),
        ],
        limit="reading and checking the files, which are in the page cache, and a copy into "
        "new memory, whose pages the kernel has to zero",
    )
