"""One request after the other, each when the one before was answered."""

from __future__ import annotations

from bench.row import RATE, Row, times
from bench.tcp.load import MEDIAN, TAIL, Load
from bench.tcp.servers import Beanstalkd, Echo, Nats, Redis, Shmq

#: Bytes of a PING with 64, which the echo has to send back.
FRAME = 80


def row() -> Row:
    """One connection; and eight, for what shmq does with them."""
    limit = Load("C, a read and a write", Echo, "echo", window=1, size=FRAME)
    ours = [
        Load("shmq PING", Shmq, "ping", window=1),
        Load("shmq PRODUCE", Shmq, "produce", window=1),
    ]
    contestants = [
        *ours,
        Load("shmq CONSUME, then ACK", Shmq, "consume", window=1, note="two trips a message"),
        Load("shmq PRODUCE, eight connections", Shmq, "produce", window=1, connections=8),
        Load("Redis LPUSH", Redis, "redis-push", window=1),
        Load("Redis XADD", Redis, "redis-add", window=1),
        Load("beanstalkd put", Beanstalkd, "beanstalkd-put", window=1),
        Load("NATS JetStream publish", Nats, "nats-publish", window=1),
        limit,
    ]
    return Row(
        key="tcp-ping-pong",
        title="One request at a time, 64 B, one connection",
        contestants=contestants,
        figures=[RATE, MEDIAN, TAIL],
        bars=[times(contestant.label, limit.label, 0.7) for contestant in ours],
        limit="two wake-ups by the kernel, and an event loop in Python around the engine",
    )
