"""Messages in: one by one with 64 in flight, and 64 per request."""

from __future__ import annotations

from bench.row import RATE, Row, at_least, times
from bench.tcp.load import MEDIAN, Load
from bench.tcp.server import Server
from bench.tcp.servers import Beanstalkd, Nats, Redis, Shmq

#: Messages in flight with 64 per request: 16 requests.
WINDOW = 1024

#: The labels, servers and works; shmq is the first.
LOADS: tuple[tuple[str, type[Server], str], ...] = (
    ("shmq PRODUCE", Shmq, "produce"),
    ("Redis LPUSH", Redis, "redis-push"),
    ("Redis XADD", Redis, "redis-add"),
    ("beanstalkd put", Beanstalkd, "beanstalkd-put"),
    ("NATS JetStream publish", Nats, "nats-publish"),
)
OURS, *PEERS = (label for label, _, _ in LOADS)


def _row(key: str, title: str, connections: int, least: float, limit: str) -> Row:
    return Row(
        key=key,
        title=f"Put, 64 B, each answered, 64 in flight on {title}",
        contestants=[
            Load(label, server, work, connections=connections) for label, server, work in LOADS
        ],
        figures=[RATE, MEDIAN],
        bars=[times(OURS, PEERS, 1.0), at_least(OURS, least)],
        limit=limit,
    )


def row() -> Row:
    """One connection."""
    limit = "system calls, and one worker, whose connection it is"
    return _row("tcp-produce", "one connection", 1, 800e3, limit)


def eight_row() -> Row:
    """Eight connections."""
    limit = "two workers and the load generator, which share two cores"
    return _row("tcp-produce-eight", "each of eight connections", 8, 1e6, limit)


def batch_row() -> Row:
    """64 messages per request."""
    ours = Load("shmq PRODUCE_BATCH of 64", Shmq, "batch", window=WINDOW, batch=64)
    theirs = Load("Redis LPUSH of 64", Redis, "redis-push", window=WINDOW, batch=64)
    return Row(
        key="tcp-batch",
        title="Put, 64 B, 64 in a request, one connection, 16 requests in flight",
        contestants=[ours, theirs],
        figures=[RATE, MEDIAN],
        bars=[times(ours.label, theirs.label, 1.0), at_least(ours.label, 3e6)],
        limit="the copy out of the socket and the copy into the queue, by one worker",
    )
