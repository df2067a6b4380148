"""Lists of bytes, 64 at a time."""

from __future__ import annotations

from bench.peers import cloudtoid, fifo, shared_queue, subetha, zmq_ipc
from bench.row import Row, above, at_least
from bench.stream import Stream
from bench.way import Way

PEERS: tuple[type[Way], ...] = (
    subetha.Batches,
    cloudtoid.Batches,
    zmq_ipc.Multipart,
    fifo.Batches,
)
OURS: type[Way] = shared_queue.Batches
MESSAGES: type[Way] = shared_queue.Messages


def row() -> Row:
    """64 B."""
    return Row(
        key="batches",
        title="64 B in batches of 64",
        contestants=[Stream(kind, 64) for kind in (OURS, MESSAGES, *PEERS)],
        bars=[at_least(OURS.label, 12e6), above(OURS.label, [kind.label for kind in PEERS])],
        limit="a bytes object a message, and the line of its slot, which crosses both ways",
    )


def kib_row() -> Row:
    """1 KiB."""
    peers = [kind for kind in PEERS if kind is not subetha.Batches]
    return Row(
        key="kib-batches",
        title="1 KiB in batches of 64",
        contestants=[Stream(kind, 1024) for kind in (OURS, MESSAGES, *peers)],
        bars=[at_least(OURS.label, 4e6)],
        limit="the cache lines of the body, which cross from one core to the other",
    )
