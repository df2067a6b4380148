"""The work of a producer and of a consumer, each in its own process."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shmq import api
from shmq.errors import Empty, Full, LeaseExpired
from shmq.stress.journal import ACKED, ACKING, GOT, Journal
from shmq.stress.latency import bucket_of
from shmq.stress.plan import Plan
from shmq.stress.shared_counters import SharedCounters
from shmq.stress.stamped_body import Bodies, opened

__all__ = ["Job", "failure_of", "on_row", "produce"]

#: How long a worker waits before it checks whether to stop, in seconds.
_SLICE = 0.1

#: Bytes of a journal that are buffered in runs without kills.
_KEPT = 1 << 16


class Job(NamedTuple):
    """The queue to work on, the plan, and where counters and journals are."""

    reach: Callable[[], api.Broker]
    queue: str
    plan: Plan
    counters: SharedCounters
    directory: Path
    starter: int

    @property
    def abandoned(self) -> bool:
        """Whether the process that started the workers is gone."""
        return os.getppid() != self.starter


def failure_of(job: Job, worker: int) -> str | None:
    """Why the worker failed, in one line; None if it left no reason."""
    with contextlib.suppress(FileNotFoundError):
        return (job.directory / f"{worker}.failure").read_text().strip().splitlines()[-1]
    return None


def produce(job: Job, worker: int) -> None:
    """Put messages until the counters say stop or this producer's share is put."""
    with _at_work(job, worker) as queue:
        bodies = Bodies(worker, job.plan.size)
        group = f"producer {worker}" if job.plan.grouped else None
        share = job.plan.share(worker)
        number = 0
        while (share is None or number < share) and not (job.counters.stopped or job.abandoned):
            end = number + job.plan.batch
            if share is not None:
                end = min(end, share)
            put = _put(queue, [bodies.make(each) for each in range(number, end)], group)
            job.counters.add(worker - 1, put)
            number += put


def _put(queue: api.Queue, bodies: list[bytes], group: str | None) -> int:
    """Put the bodies, and return how many of them, from the first on, were put."""
    if len(bodies) > 1:
        return queue.put_many(bodies, True, _SLICE, group=group)
    try:
        queue.put(bodies[0], True, _SLICE, group=group)
    except Full:
        return 0
    return 1


def consume(job: Job, worker: int, row: int) -> None:
    """Get, verify and acknowledge messages until the counters say drain and none is left."""
    with _at_work(job, worker) as queue:
        taker = _Taker(job, worker, row)
        while not job.abandoned:
            messages = _get(queue, job.plan.batch)
            if messages:
                taker.take(queue, messages)
            elif job.counters.draining and _nothing_left(queue):
                break
        taker.close()


def _get(queue: api.Queue, batch: int) -> Sequence[api.Message]:
    if batch > 1:
        return queue.get_many(batch, _SLICE)
    try:
        return (queue.get(timeout=_SLICE),)
    except Empty:
        return ()


def _nothing_left(queue: api.Queue) -> bool:
    stats = queue.stats()
    return not (stats.depth or stats.delayed or stats.in_flight or stats.dying)


class _Taker:
    """Verifies a consumer's messages and records them in its journal and counters."""

    def __init__(self, job: Job, worker: int, row: int) -> None:
        self._size = job.plan.size
        self._counters = job.counters
        self._row = row
        self._histogram = job.counters.histogram_of(row)
        self._careful = job.plan.careful
        self._journal = Journal(job.directory, worker, 0 if self._careful else _KEPT)

    def take(self, queue: api.Queue, messages: Sequence[api.Message]) -> None:
        """Verify and acknowledge messages that were just delivered."""
        now = time.monotonic_ns()
        numbers, longest = [], 0
        for message in messages:
            number, at = opened(message.body, self._size)
            numbers.append(number)
            took = now - at
            self._histogram[bucket_of(took)] += 1
            longest = max(longest, took)
        self._journal.write_at(now, GOT, numbers)
        self._counters.longest(self._row, longest)
        if self._careful:
            self._journal.write(ACKING, *numbers)
        settled = _settle(queue, messages, numbers)
        if self._careful:
            self._journal.write(ACKED, *settled)
        self._counters.add(self._row, len(settled))

    def close(self) -> None:
        """Write the buffered records of the journal."""
        self._journal.close()


def _settle(queue: api.Queue, messages: Sequence[api.Message], numbers: list[int]) -> list[int]:
    """Acknowledge the messages; returns the numbers of those whose lease had not expired."""
    if len(messages) > 1:
        late = set(queue.ack_many(messages))
        if not late:
            return numbers
        pairs = zip(messages, numbers, strict=True)
        return [number for message, number in pairs if message.receipt not in late]
    try:
        messages[0].ack()
    except LeaseExpired:
        return []
    return numbers


@contextlib.contextmanager
def _at_work(job: Job, worker: int) -> Iterator[api.Queue]:
    """The queue to work on. The parent handles Ctrl-C; a failure is written to a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        with job.reach() as broker, broker.queue(job.queue) as queue:
            yield queue
    except BaseException:  # noqa: BLE001 - the parent reports it
        (job.directory / f"{worker}.failure").write_text(traceback.format_exc())
        os._exit(1)


def on_row(row: int) -> Callable[..., None]:
    """A consumer that counts in that row of the counters."""

    def work(job: Job, worker: int) -> None:
        consume(job, worker, row)

    return work
