"""Python clients: put, get and acknowledge."""

from __future__ import annotations

from collections.abc import Sequence

from bench.machine import Place
from bench.row import Row, beside, times
from bench.tcp.clients import beanstalkd, nats_jetstream, redis_list, redis_stream, shmq_client
from bench.tcp.cycle import Client, Cycle
from bench.tcp.load import Load
from bench.tcp.rows.ping_pong import FRAME
from bench.tcp.servers import Echo

#: The bars: this many times the best peer's rate, one call each and with many in flight.
ONE, MANY = 1.5, 4.0
#: Messages of a cycle with many in flight.
COUNT = 512


def _row(
    key: str, title: str, limit: str, ours: Sequence[type[Client]], theirs: Sequence[type[Client]]
) -> Row:
    peers = [kind.label for kind in theirs]
    return Row(
        key=key,
        title=title,
        contestants=[Cycle(kind, count=COUNT) for kind in (*ours, *theirs)],
        bars=[times(kind.label, peers, MANY) for kind in ours],
        limit=limit,
    )


class ThreeTrips(Load):
    """The limit of a C client whose three requests are answered one by one."""

    def __init__(self, place: Place) -> None:
        label = "C, three times a read and a write"
        super().__init__(label, Echo, "echo", window=1, size=FRAME, place=place)

    def measure(self, port: int, messages: int, core: int | None = None) -> dict[str, float]:
        """See :class:`bench.tcp.load.Load`."""
        found = super().measure(port, messages, core)
        return found | {"rate": found["rate"] / 3}


def _one_row(key: str, place: Place) -> Row:
    ours: type[Client] = shmq_client.Riding
    answered: type[Client] = shmq_client.OneByOne
    theirs: tuple[type[Client], ...] = (
        redis_list.OneByOne,
        redis_stream.OneByOne,
        beanstalkd.OneByOne,
        nats_jetstream.OneByOne,
    )
    clients = [Cycle(kind, place) for kind in (ours, answered, *theirs)]
    peers = [kind.label for kind in theirs]
    limit = ThreeTrips(place)
    return Row(
        key=key,
        title=f"A client in Python, 64 B, put, get, acknowledge: one call each, {place}",
        contestants=[*clients, limit],
        bars=[
            times(ours.label, peers, ONE),
            beside(answered.label, peers),
            beside(answered.label, limit.label),
        ],
        limit="a round trip each, with two wake-ups by the kernel, but for an acknowledgement that "
        "rides with the next request; what a client in C could do at most with three round trips "
        "is the last figure",
    )


def one_core_row() -> Row:
    """One call each, answered before the next, without a wake on another core."""
    return _one_row("tcp-client-one", "one core")


def two_cores_row() -> Row:
    """One call each, with a core for each side that sleeps while it waits."""
    return _one_row("tcp-client-one-apart", "two cores")


def pipelined_row() -> Row:
    """Many requests in flight."""
    return _row(
        "tcp-client-pipelined",
        "A client in Python, 64 B, a call for each message, many in flight",
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
