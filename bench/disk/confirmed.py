"""Producers whose puts return once the messages are on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import shmq
from bench.disk import flushes, folder
from bench.disk.figures import MEDIAN, SIZE
from bench.disk.timing import share
from bench.disk.writer import QUEUE, alone, kept
from bench.machine import now
from bench.row import SECONDS, Contestant, Role, Turn
from bench.stage import Cast, Failed, Side, Stage

#: The most messages of a visit: all are in the queue at once.
MOST = 1 << 20
#: The most calls of a turn.
MOST_CALLS = 1000
#: Bytes of arena in addition to those of the messages.
LEAST = 1 << 16
#: The numbers of the producer and of its message.
NUMBERS = struct.Struct("<II")
FILLER = random.Random(SIZE).randbytes(SIZE - NUMBERS.size)
#: Messages that the check of the recovered queue takes at once.
LOOK = 1024

#: The start and the end of the clock, and the duration of each put, in ns.
Times = tuple[int, int, list[int]]


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of a process: the messages of a call, and the threads that call.

    ``piped``: not one after the other, but in a pipeline as long as a call.
    """

    batch: int
    threads: int
    piped: bool


class Confirmed(Contestant):
    """A number of producers, each with ``batch`` messages per call, and the writer.

    At the end of a visit the writer is killed and the queue's memory is removed. The queue is
    then recovered from disk and must have all confirmed messages.
    """

    role: Role = "shmq"
    most = MOST_CALLS

    def __init__(
        self,
        label: str,
        producers: int = 1,
        batch: int = 1,
        threads: int = 1,
        piped: bool = False,
        note: str = "",
    ) -> None:
        self.label = label
        self.producers = producers
        self.batch = batch
        self.threads = threads
        self.piped = piped
        self.note = note

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return folder.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        producers, threads = min(self.producers, 3), min(self.threads, 3)
        return Confirmed(self.label, producers, self.batch, threads, self.piped, self.note)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        work = Work(self.batch, self.threads, self.piped)
        played = 0
        with kept(durability="journal", capacity=MOST, arena_bytes=2 * SIZE * MOST) as made:
            sides = [
                Side(_produce, number, made.name, work, core=None)
                for number in range(self.producers)
            ]
            with Cast(sides) as cast:

                def turn(calls: int) -> dict[str, float]:
                    nonlocal played
                    played += calls + 1
                    with flushes.at_least(calls):
                        return self._figures(cast.turn(calls), calls)

                yield turn
            made.lose()
            made.recover()
            alone(_look, made.name, self.producers * self.threads, played * self.batch)

    def _figures(self, found: list[Times], calls: int) -> dict[str, float]:
        begun, ended, taken = _together(found)
        seconds = (ended - begun) / 1e9
        timed = calls * self.batch * self.producers * self.threads
        return {"rate": timed / seconds, MEDIAN.key: share(taken, 0.5), SECONDS: seconds}


def bodies_of(producer: int, count: int, first: int = 0) -> list[bytes]:
    """Messages of a producer in order, from the one with that number."""
    return [NUMBERS.pack(producer, number) + FILLER for number in range(first, first + count)]


def _produce(stage: Stage, side: int, name: str, work: Work) -> None:
    """Run all threads of a process in each turn. The first call of each is not timed."""
    producers = range(side * work.threads, (side + 1) * work.threads)
    first = 0
    with shmq.connect(name) as broker:
        queue = broker.queue(QUEUE)
        for calls in stage.turns():
            count = (calls + 1) * work.batch
            given = [bodies_of(producer, count, first) for producer in producers]
            first += count
            if work.threads == 1:
                stage.tell(_put(stage.meet, queue, given[0], work))
            else:
                stage.tell(_in_threads(stage, queue, given, work))


def _in_threads(stage: Stage, queue: Any, given: list[list[bytes]], work: Work) -> Times:
    found: list[Times] = []
    barrier = threading.Barrier(work.threads, action=stage.meet)
    running = [
        threading.Thread(
            target=lambda bodies=bodies: found.append(_put(barrier.wait, queue, bodies, work))
        )
        for bodies in given
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if len(found) != work.threads:
        raise Failed(f"{work.threads - len(found)} of {work.threads} threads failed")
    return _together(found)


def _together(found: Sequence[Times]) -> Times:
    begun = min(first for first, _, _ in found)
    ended = max(last for _, last, _ in found)
    return begun, ended, [one for _, _, taken in found for one in taken]


def _put(meet: Callable[[], object], queue: Any, bodies: list[bytes], work: Work) -> Times:
    given = [bodies[at : at + work.batch] for at in range(0, len(bodies), work.batch)]
    taken = []
    with contextlib.ExitStack() as stack:
        pipe = (
            stack.enter_context(queue.pipeline(work.batch, confirm="disk")) if work.piped else None
        )
        put = _way(queue, work.batch, pipe)
        put(given[0])
        meet()
        begun = before = now()
        for part in given[1:]:
            put(part)
            after = now()
            taken.append(after - before)
            before = after
        if pipe is not None:
            pipe.flush()
        return begun, now(), taken


def _way(queue: Any, batch: int, pipe: Any) -> Callable[[list[bytes]], object]:
    """The function that puts the messages of a call."""
    if pipe is not None:
        return lambda part: [pipe.put(body) for body in part]
    if batch > 1:
        return lambda part: _all(queue.put_many(part, confirm="disk"), batch)
    return lambda part: queue.put(part[0], confirm="disk")


def _all(accepted: int, batch: int) -> None:
    if accepted != batch:
        raise Failed(f"{accepted} messages of {batch} were accepted")


def _look(stage: Stage, name: str, producers: int, each: int) -> None:
    """Check that each message is there once, whole, and in its producer's order."""
    stage.meet()
    expected = [0] * producers
    with shmq.connect(name) as broker:
        queue = broker.queue(QUEUE)
        while found := queue.get_many(LOOK, block=False):
            for message in found:
                producer, number = NUMBERS.unpack_from(message.body)
                if message.body[NUMBERS.size :] != FILLER or producer >= producers:
                    raise Failed(f"message {number} came from the disk with other bytes")
                if number != expected[producer]:
                    raise Failed(
                        f"message {number} of producer {producer} came from the disk in place "
                        f"of message {expected[producer]}"
                    )
                expected[producer] += 1
    if expected != [each] * producers:
        short = min(range(producers), key=lambda producer: expected[producer])
        raise Failed(
            f"of producer {short}, {expected[short]} messages are on disk where {each} were "
            f"confirmed"
        )
