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
from bench.row import Row, beside, times
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
BODIES: type[Way] = shared_queue.Bodies
CONSUMED: type[Way] = shared_queue.Consumed
#: Messages in a round: few, because some peers pass few in a turn.
COUNT = 256


def row() -> Row:
    """64 B."""
    peers = [kind.label for kind in PEERS]
    return Row(
        key="one-call",
        title="64 B, one call each",
        contestants=[Stream(kind, 64, COUNT) for kind in (OURS, BODIES, CONSUMED, *PEERS)],
        bars=[
            times(OURS.label, peers, 0.5),
            times(BODIES.label, peers, 1.5),
            beside(CONSUMED.label, peers),
        ],
        limit="the interpreter: a put is a call of 110 ns or more, so `bodies` cannot be faster; "
        "without it the consumer makes three calls, reads an attribute and gets a Message object",
        share=2.0,
    )


def kib_row() -> Row:
    """1 KiB."""
    peers = [kind for kind in PEERS if kind is not subetha.OneByOne]
    return Row(
        key="kib-one-call",
        title="1 KiB, one call each",
        contestants=[Stream(kind, 1024, COUNT) for kind in (OURS, *peers)],
        bars=[times(OURS.label, [kind.label for kind in peers], 1.5)],
        limit="the cache lines of the body, which cross from one core to the other",
        share=1.5,
    )
