"""Round trips between processes that sleep, and between processes that spin."""

from __future__ import annotations

from bench.machine import two_cores
from bench.peers import cloudtoid, fifo, shared_queue, standard, subetha, unix_socket, zmq_ipc
from bench.row import Contestant, Row, at_most, within
from bench.trip import MEDIAN, TAIL, Trip, TripLimit
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


def sleeping_row() -> Row:
    """On one core, one trip after the other; across two, with pauses."""
    here, there = two_cores()
    places = [("one core", (here, here), 0.0)]
    if there != here:
        places.append(("two cores", (here, there), PAUSE))
    contestants: list[Contestant] = []
    bars = []
    for where, cores, pause in places:
        limit = TripLimit(f"C sem_post, sem_wait, {where}", "sleep", cores, pause)
        contestants += [Trip(kind, where, cores, pause) for kind in SLEEPERS]
        contestants.append(limit)
        bars.append(within(f"{OURS.label}, {where}", limit.label, 1.3, MEDIAN.key))
    return Row(
        key="round-trip-sleeping",
        title="Round trip, 64 B, both sides asleep while they wait",
        contestants=contestants,
        figures=[MEDIAN, TAIL],
        bars=bars,
        limit="two wake-ups by the kernel, from sleeps that have a time limit, and Python twice",
    )


def spinning_row() -> Row:
    """Across two cores, one trip after the other."""
    cores = two_cores()
    contestants: list[Contestant] = [Trip(kind, "two cores", cores) for kind in SPINNERS]
    return Row(
        key="round-trip-spinning",
        title="Round trip, 64 B, both sides spinning while they wait",
        contestants=[*contestants, TripLimit("C, two numbers, two cores", "spin", cores)],
        figures=[MEDIAN, TAIL],
        bars=[at_most(f"{OURS.label}, two cores", 2, "µs", MEDIAN.key)],
        limit="two messages, each a put, a get and an ack, and the cache lines that cross",
    )
