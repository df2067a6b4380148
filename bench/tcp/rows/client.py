"""Clients in Python: put, get and acknowledge."""

from __future__ import annotations

from collections.abc import Sequence

from bench.row import Row, times_best
from bench.tcp.clients import beanstalkd, nats_jetstream, redis_list, redis_stream, shmq_client
from bench.tcp.cycle import Client, Cycle

#: How many times the best peer's rate the client is to have.
TIMES = 4.0


def _row(
    key: str,
    title: str,
    limit: str,
    ours: Sequence[type[Client]],
    theirs: Sequence[type[Client]],
) -> Row:
    peers = [kind.label for kind in theirs]
    return Row(
        key=key,
        title=title,
        contestants=[Cycle(kind) for kind in (*ours, *theirs)],
        bars=[times_best(kind.label, peers, TIMES) for kind in ours],
        limit=limit,
    )


def one_row() -> Row:
    """One call each, each answered before the next."""
    return _row(
        "tcp-client-one",
        "A client in Python, 64 B, put, get, acknowledge: one call each",
        "three round trips through the kernel, as for everybody",
        [shmq_client.OneByOne],
        [
            redis_list.OneByOne,
            redis_stream.OneByOne,
            beanstalkd.OneByOne,
            nats_jetstream.OneByOne,
        ],
    )


def pipelined_row() -> Row:
    """Many requests under way."""
    return _row(
        "tcp-client-pipelined",
        "A client in Python, 64 B, a call for each message, many under way",
        "the interpreter: a call and an object for each message on either side",
        [shmq_client.Pipelined],
        [redis_list.Pipelined, redis_stream.Batches, nats_jetstream.Batches],
    )


def batch_row() -> Row:
    """Lists of 64."""
    return _row(
        "tcp-client-batch",
        "A client in Python, 64 B, 64 messages a call",
        "a bytes object for each message, and a trip for each batch",
        [shmq_client.Batches],
        [redis_list.Batched, redis_stream.Batches, nats_jetstream.Batches],
    )
