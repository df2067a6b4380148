"""Lists of bytes, 64 at a time."""

from __future__ import annotations

from bench.peers import cloudtoid, fifo, shared_queue, subetha, zmq_ipc
from bench.row import Row, beside, times
from bench.stream import Stream
from bench.way import Way

PEERS: tuple[type[Way], ...] = (subetha.Batches, cloudtoid.Batches, zmq_ipc.Multipart, fifo.Batches)
OURS: type[Way] = shared_queue.Batches
OTHERS: tuple[type[Way], ...] = (shared_queue.Messages, shared_queue.BatchesConsumed)


def row() -> Row:
    """64 B."""
    peers = [kind.label for kind in PEERS]
    return Row(
        key="batches",
        title="64 B in batches of 64",
        contestants=[Stream(kind, 64) for kind in (OURS, *OTHERS, *PEERS)],
        bars=[times(OURS.label, peers, 0.8), *[beside(kind.label, peers) for kind in OTHERS]],
        limit="a bytes object a message, and the cache lines of its body and of its record",
        share=1.5,
    )


def kib_row() -> Row:
    """1 KiB."""
    peers = [kind for kind in PEERS if kind is not subetha.Batches]
    return Row(
        key="kib-batches",
        title="1 KiB in batches of 64",
        contestants=[Stream(kind, 1024) for kind in (OURS, *peers)],
        bars=[times(OURS.label, [kind.label for kind in peers], 2.0)],
        limit="the cache lines of the body, which cross from one core to the other",
    )
