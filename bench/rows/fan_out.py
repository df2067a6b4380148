"""One producer and eight subscribers of 1 MiB."""

from __future__ import annotations

from bench.peers import iceoryx, shared_stream
from bench.row import Row, times
from bench.rows.mib import COUNT, SIZE
from bench.stream import Stream
from bench.way import Way

SUBSCRIBERS = 8


def row() -> Row:
    """Beside iceoryx2; both have one copy of a body for all subscribers."""
    kinds: list[type[Way]] = [shared_stream.FanOut, iceoryx.FanOut]
    ours, theirs = (kind.label for kind in kinds)
    return Row(
        key="stream-fan-out",
        title="1 MiB to 8 subscribers, read in place",
        contestants=[Stream(kind, SIZE, COUNT, SUBSCRIBERS) for kind in kinds],
        bars=[times(ours, theirs, 1.0)],
        limit="the ring is written from end to end, so a body is written to memory that is in no "
        "cache; iceoryx2 writes it into the block that was read last",
    )
