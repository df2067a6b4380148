"""One request after the other, each when the one before was answered."""

from __future__ import annotations

from bench.machine import places
from bench.row import RATE, Bar, Contestant, Row, times
from bench.tcp.load import MEDIAN, TAIL, Load
from bench.tcp.server import Server
from bench.tcp.servers import Beanstalkd, Echo, Nats, Redis, Shmq

#: Bytes of a PING with 64, which the echo has to send back.
FRAME = 80

#: What each does, beside the limit.
WORKS: tuple[tuple[str, type[Server], str, str], ...] = (
    ("shmq PING", Shmq, "ping", ""),
    ("shmq PRODUCE", Shmq, "produce", ""),
    ("shmq CONSUME, then ACK", Shmq, "consume", "two trips a message"),
    ("Redis LPUSH", Redis, "redis-push", ""),
    ("Redis XADD", Redis, "redis-add", ""),
    ("beanstalkd put", Beanstalkd, "beanstalkd-put", ""),
    ("NATS JetStream publish", Nats, "nats-publish", ""),
)


def row() -> Row:
    """One connection, on one core and across two; and eight, wherever they are."""
    contestants: list[Contestant] = []
    bars: list[Bar] = []
    for where, cores in places().items():
        limit = Load(
            f"C, a read and a write, {where}", Echo, "echo", window=1, size=FRAME, cores=cores
        )
        contestants += [
            Load(f"{what}, {where}", server, work, window=1, cores=cores, note=note)
            for what, server, work, note in WORKS
        ]
        contestants.append(limit)
        bars += [times(f"{what}, {where}", limit.label, 0.7) for what, *_ in WORKS[:2]]
    eight = Load("shmq PRODUCE, eight connections", Shmq, "produce", window=1, connections=8)
    return Row(
        key="tcp-ping-pong",
        title="One request at a time, 64 B, one connection",
        contestants=[*contestants, eight],
        figures=[RATE, MEDIAN, TAIL],
        bars=bars,
        limit="two wake-ups by the kernel, and an event loop in Python around the engine",
    )
