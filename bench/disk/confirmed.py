"""Producers whose puts return once the messages are on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import shmq
from bench.disk import flushes, folder, numbered
from bench.disk.figures import SIZE
from bench.disk.timing import Times, figures, merge, time_calls
from bench.disk.writer import QUEUE, alone, kept
from bench.row import Contestant, Role, Turn
from bench.stage import Cast, Failed, Side, Stage

#: The most messages of a visit: all are in the queue at once.
MOST = 1 << 20
#: The most calls of a turn.
MOST_CALLS = 1000
#: Bytes of arena in addition to those of the messages.
LEAST = 1 << 16
#: Messages that the check of the recovered queue takes at once.
LOOK = 1024


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
                        times = merge(cast.turn(calls))
                    return figures(times, calls * self.batch * self.producers * self.threads)

                yield turn
            made.lose()
            made.recover()
            alone(_look, made.name, self.producers * self.threads, played * self.batch)


def _produce(stage: Stage, side: int, name: str, work: Work) -> None:
    """Run all threads of a process in each turn. The first call of each is not timed."""
    producers = range(side * work.threads, (side + 1) * work.threads)
    first = 0
    with shmq.connect(name) as broker:
        queue = broker.queue(QUEUE)
        for calls in stage.turns():
            count = (calls + 1) * work.batch
            given = [numbered.bodies_of(producer, count, first) for producer in producers]
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
    return merge(found)


def _put(meet: Callable[[], object], queue: Any, bodies: list[bytes], work: Work) -> Times:
    given = [bodies[at : at + work.batch] for at in range(0, len(bodies), work.batch)]
    if not work.piped:
        return time_calls(meet, _way(queue, work.batch), given)
    with queue.pipeline(work.batch, confirm="disk") as pipe:
        return time_calls(meet, lambda part: [pipe.put(body) for body in part], given, pipe.flush)


def _way(queue: Any, batch: int) -> Callable[[list[bytes]], object]:
    """The function that puts the messages of a call."""
    if batch > 1:
        return lambda part: _all(queue.put_many(part, confirm="disk"), batch)
    return lambda part: queue.put(part[0], confirm="disk")


def _all(accepted: int, batch: int) -> None:
    if accepted != batch:
        raise Failed(f"{accepted} messages of {batch} were accepted")


def _look(stage: Stage, name: str, producers: int, each: int) -> None:
    stage.meet()
    with shmq.connect(name) as broker:
        numbered.check(_bodies(broker.queue(QUEUE)), producers, each)


def _bodies(queue: Any) -> Iterator[bytes]:
    while found := queue.get_many(LOOK, block=False):
        yield from [message.body for message in found]
