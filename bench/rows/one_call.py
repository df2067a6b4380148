"""One message per call: put, get and ack, compared with the peers' single calls."""

from __future__ import annotations

from bench.peers import (
    cloudtoid,
    fifo,
    iceoryx,
    posix_queue,
    shared_queue,
    standard,
    subetha,
    unix_socket,
    zmq_ipc,
)
from bench.row import Row, above, at_least
from bench.stream import Stream
from bench.way import Way

PEERS: tuple[type[Way], ...] = (
    cloudtoid.OneByOne,
    subetha.OneByOne,
    zmq_ipc.OneByOne,
    posix_queue.OneByOne,
    unix_socket.Packets,
    unix_socket.Stream,
    iceoryx.OneByOne,
    fifo.OneByOne,
    standard.Pipe,
    standard.Queue,
)
OURS: type[Way] = shared_queue.OneByOne


def row() -> Row:
    """64 B."""
    return Row(
        key="one-call",
        title="64 B, one call each",
        contestants=[Stream(kind, 64) for kind in (OURS, *PEERS)],
        bars=[at_least(OURS.label, 3e6), above(OURS.label, [kind.label for kind in PEERS])],
        limit="three calls and an attribute from Python in the consumer, two of them with a lock, "
        "and a Message object: some 200 ns without any other process",
    )


def kib_row() -> Row:
    """1 KiB."""
    peers = [kind for kind in PEERS if kind is not subetha.OneByOne]
    return Row(
        key="kib-one-call",
        title="1 KiB, one call each",
        contestants=[Stream(kind, 1024) for kind in (OURS, *peers)],
        bars=[at_least(OURS.label, 2.3e6)],
        limit="the cache lines of the body, which cross from one core to the other",
    )
