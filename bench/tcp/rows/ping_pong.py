"""One request after the other, each after the answer to the previous one."""

from __future__ import annotations

from bench.machine import Place
from bench.row import RATE, Row, beside, times
from bench.tcp.load import MEDIAN, Load
from bench.tcp.rows.produce import LOADS, OURS, PEERS
from bench.tcp.servers import Echo, Shmq

#: Bytes of a PING with 64 bytes of payload, which the echo sends back.
FRAME = 80


def _row(key: str, place: Place) -> Row:
    ours = [
        Load("shmq PING", Shmq, "ping", window=1, place=place),
        Load("shmq PRODUCE", Shmq, "produce", window=1, place=place),
    ]
    limit = Load("C, a read and a write", Echo, "echo", window=1, size=FRAME, place=place)
    return Row(
        key=key,
        title=f"One request at a time, 64 B, one connection, {place}",
        contestants=[
            *ours,
            Load(
                "shmq CONSUME, then ACK",
                Shmq,
                "consume",
                window=1,
                place=place,
                note="two trips a message",
            ),
            *[
                Load(label, server, work, window=1, place=place)
                for label, server, work in LOADS
                if label in PEERS
            ],
            limit,
        ],
        figures=[RATE, MEDIAN],
        bars=[
            *[times(contestant.label, limit.label, 0.7) for contestant in ours],
            beside(ours[1].label, PEERS),
        ],
        limit="two wake-ups by the kernel, and an event loop in Python around the engine",
    )


def one_core_row() -> Row:
    """On one core, without a wake on another core."""
    return _row("tcp-ping-pong", "one core")


def two_cores_row() -> Row:
    """With a core for each side that sleeps while it waits."""
    return _row("tcp-ping-pong-apart", "two cores")


def eight_row() -> Row:
    """Eight connections, wherever the kernel puts them."""
    return Row(
        key="tcp-ping-pong-eight",
        title="One request at a time on each of eight connections, 64 B",
        contestants=[
            Load(label, server, work, window=1, connections=8) for label, server, work in LOADS
        ],
        figures=[RATE, MEDIAN],
        bars=[beside(OURS, PEERS)],
        limit="a system call to read and one to write for each request",
    )
