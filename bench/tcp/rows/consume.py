"""Messages out: leased and acknowledged, with many under way."""

from __future__ import annotations

from bench.row import RATE, Row, at_least
from bench.tcp.load import MEDIAN, TAIL, Load
from bench.tcp.servers import Beanstalkd, Nats, Redis, Shmq

#: Messages under way: the credit of a subscription.
WINDOW = 256
GATHERED = "an ACK for what came together"


def row() -> Row:
    """One connection and eight."""
    contestants = []
    for connections, where in ((1, "one connection"), (8, "eight connections")):
        for what, server, work, batch, note in (
            (f"shmq SUBSCRIBE, {GATHERED}", Shmq, "subscribe", 64, "at most 64 to an ACK"),
            ("shmq SUBSCRIBE, an ACK each", Shmq, "subscribe", 1, ""),
            ("shmq CONSUME and ACK of 64", Shmq, "consume", 64, ""),
            ("Redis LMOVE, LREM", Redis, "redis-move", 1, ""),
            ("Redis XREADGROUP, XACK of 64", Redis, "redis-group", 64, ""),
            ("beanstalkd reserve, delete", Beanstalkd, "beanstalkd-reserve", 1, ""),
            ("NATS JetStream, pulls of 64, +ACK", Nats, "nats-fetch", 64, "ack is not answered"),
        ):
            contestants.append(
                Load(
                    f"{what}, {where}",
                    server,
                    work,
                    connections=connections,
                    window=WINDOW,
                    batch=batch,
                    note=note,
                )
            )
    return Row(
        key="tcp-consume",
        title="Get and acknowledge, 64 B, each answered, 256 under way on a connection",
        contestants=contestants,
        figures=[RATE, MEDIAN, TAIL],
        bars=[
            at_least(f"shmq SUBSCRIBE, {GATHERED}, one connection", 500e3),
            at_least("shmq SUBSCRIBE, an ACK each, one connection", 500e3),
        ],
        limit="a lease and a settlement for each message, and a frame each way",
    )
