"""Messages in: one by one with 64 under way, and 64 to a request."""

from __future__ import annotations

from bench.row import RATE, Row, at_least
from bench.tcp.load import MEDIAN, TAIL, Load
from bench.tcp.servers import Beanstalkd, Nats, Redis, Shmq

#: Messages under way where 64 are a request: 16 requests.
WINDOW = 1024


def row() -> Row:
    """One connection and eight, each with 64 under way."""
    contestants = []
    for connections, where in ((1, "one connection"), (8, "eight connections")):
        for what, server, work in (
            ("shmq PRODUCE", Shmq, "produce"),
            ("Redis LPUSH", Redis, "redis-push"),
            ("Redis XADD", Redis, "redis-add"),
            ("beanstalkd put", Beanstalkd, "beanstalkd-put"),
            ("NATS JetStream publish", Nats, "nats-publish"),
        ):
            contestants.append(Load(f"{what}, {where}", server, work, connections=connections))
    return Row(
        key="tcp-produce",
        title="Put, 64 B, each answered, 64 under way on a connection",
        contestants=contestants,
        figures=[RATE, MEDIAN, TAIL],
        bars=[
            at_least("shmq PRODUCE, one connection", 800e3),
            at_least("shmq PRODUCE, eight connections", 1e6),
        ],
        limit="a connection is one worker's; eight and the load generator share two cores",
    )


def batch_row() -> Row:
    """64 messages a request."""
    ours = Load("shmq PRODUCE_BATCH of 64", Shmq, "batch", window=WINDOW, batch=64)
    theirs = Load("Redis LPUSH of 64", Redis, "redis-push", window=WINDOW, batch=64)
    return Row(
        key="tcp-batch",
        title="Put, 64 B, 64 in a request, one connection, 16 requests under way",
        contestants=[ours, theirs],
        figures=[RATE, MEDIAN, TAIL],
        bars=[at_least(ours.label, 3e6)],
        limit="the copy out of the socket and the copy into the queue, by one worker",
    )
