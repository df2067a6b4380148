"""Round trips between processes that sleep, and between processes that spin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from bench.machine import two_cores
from bench.peers import cloudtoid, fifo, shared_queue, standard, subetha, unix_socket, zmq_ipc
from bench.row import Figure, Row, Turn, at_most, beside, within
from bench.trip import MEDIAN, Trip, TripLimit
from bench.way import Way

OURS = shared_queue.OneByOne
#: Seconds before each trip, in which the other side goes to sleep.
PAUSE = 0.0005

SLEEPERS: tuple[type[Way], ...] = (
    OURS,
    standard.Pipe,
    unix_socket.Packets,
    zmq_ipc.OneByOne,
    fifo.OneByOne,
)
SPINNERS: tuple[type[Way], ...] = (OURS, cloudtoid.OneByOne, subetha.OneByOne)
SEMAPHORES = "C sem_post, sem_wait"

#: The p50 that 95 % of the turns do not exceed, each with one pause in it, in seconds.
QUICK = Figure("p50 of 95 %", "µs", higher_is_better=False, quantile=0.95)
HICCUP = 0.002


def _sleeping(key: str, where: str, cores: tuple[int, int], pause: float) -> Row:
    limit = TripLimit(SEMAPHORES, "sleep", where, cores, pause)
    peers = [kind.label for kind in SLEEPERS if kind is not OURS]
    return Row(
        key=key,
        title=f"Round trip, 64 B, both sides asleep while they wait, {where}",
        contestants=[*(Trip(kind, where, cores, pause) for kind in SLEEPERS), limit],
        figures=[MEDIAN],
        bars=[
            within(OURS.label, limit.label, 1.3, MEDIAN.key),
            beside(OURS.label, peers, MEDIAN.key),
        ],
        limit="two wake-ups by the kernel, from sleeps that have a time limit, and Python twice",
    )


def one_core_row() -> Row:
    """One trip after the other."""
    here, _ = two_cores()
    return _sleeping("round-trip-one-core", "one core", (here, here), 0.0)


def two_cores_row() -> Row:
    """With pauses, so that the other side sleeps."""
    return _sleeping("round-trip-two-cores", "two cores", two_cores(), PAUSE)


class Quick(Trip):
    """Trips whose p50 is looked at by turn, too."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with super().opened() as turn:

            def quick(trips: int) -> dict[str, float]:
                found = dict(turn(trips))
                return found | {QUICK.key: found[MEDIAN.key]}

            yield quick


def spinning_row() -> Row:
    """Across two cores, one trip after the other, and one side pauses once in each turn."""
    cores, where = two_cores(), "two cores"
    limit = TripLimit("C, two numbers", "spin", where, cores)
    peers: Sequence[str] = [kind.label for kind in SPINNERS if kind is not OURS]
    return Row(
        key="round-trip-spinning",
        title="Round trip, 64 B, both sides spinning while they wait, one pause in each turn",
        contestants=[
            Quick(OURS, where, cores, hiccup=HICCUP),
            *(Trip(kind, where, cores, hiccup=HICCUP) for kind in SPINNERS if kind is not OURS),
            limit,
        ],
        figures=[MEDIAN, QUICK],
        bars=[
            at_most(OURS.label, 2, QUICK.unit, QUICK.key),
            beside(OURS.label, [*peers, limit.label], MEDIAN.key),
        ],
        limit="two messages, each a put, a get and an ack, and the cache lines that cross",
    )
