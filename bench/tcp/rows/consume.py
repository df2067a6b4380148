"""Messages out: leased and acknowledged, with many in flight."""

from __future__ import annotations

from collections.abc import Sequence

from bench.row import RATE, Bar, Row, at_least, beside, times
from bench.tcp.load import MEDIAN, Load
from bench.tcp.server import Server
from bench.tcp.servers import Beanstalkd, Nats, Redis, Shmq

#: Messages in flight: the credit of a subscription.
WINDOW = 256
#: The bar: messages per second on one connection.
LEAST = 500e3

GATHERED = "shmq SUBSCRIBE, an ACK for each batch received"
EACH = "shmq SUBSCRIBE, an ACK each"
CALLED = "shmq CONSUME and ACK of 64"

#: The labels, servers, works, messages to an acknowledgement, and notes.
LOADS: tuple[tuple[str, type[Server], str, int, str], ...] = (
    (GATHERED, Shmq, "subscribe", 64, "at most 64 to an ACK"),
    (EACH, Shmq, "subscribe", 1, ""),
    (CALLED, Shmq, "consume", 64, ""),
    ("Redis LMOVE, LREM", Redis, "redis-move", 1, ""),
    ("Redis XREADGROUP, XACK of 64", Redis, "redis-group", 64, ""),
    ("beanstalkd reserve, delete", Beanstalkd, "beanstalkd-reserve", 1, ""),
    ("NATS JetStream, pulls of 64, +ACK", Nats, "nats-fetch", 64, "ack not answered"),
)
PEERS = [label for label, server, *_ in LOADS if server is not Shmq]


def _row(key: str, title: str, connections: int, bars: Sequence[Bar]) -> Row:
    return Row(
        key=key,
        title=f"Get and acknowledge, 64 B, each answered, 256 in flight on {title}",
        contestants=[
            Load(
                label, server, work, connections=connections, window=WINDOW, batch=batch, note=note
            )
            for label, server, work, batch, note in LOADS
        ],
        figures=[RATE, MEDIAN],
        bars=[times(GATHERED, PEERS, 1.0), beside(CALLED, PEERS), *bars],
        limit="a lease and a settlement for each message, and a frame each way",
    )


def row() -> Row:
    """One connection."""
    bars = [at_least(label, LEAST) for label in (GATHERED, EACH)]
    return _row("tcp-consume", "one connection", 1, bars)


def eight_row() -> Row:
    """Eight connections."""
    return _row("tcp-consume-eight", "each of eight connections", 8, [])
