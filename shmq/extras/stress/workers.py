"""The processes of producers and consumers, the work of each, and the bodies that they check."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.process
import os
import random
import signal
import struct
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shmq import api
from shmq.errors import Empty, Full, LeaseExpired, LockTimeout
from shmq.extras.stress.counters import SharedCounters, bucket_of
from shmq.extras.stress.journal import ACKED, ACKING, GOT, NUMBER_BITS, Journal
from shmq.extras.stress.plan import LEAST_SIZE, Plan
from shmq.native._core import reserve_standard

#: Producer, number, monotonic ns, and the CRC-32 of the rest.
_HEAD = struct.Struct("<IIQ")
_CRC = struct.Struct("<I")
_CRC_AT = _HEAD.size

#: Bodies rotate through this many fillings, so that a mix of two bodies is detected.
_FILLINGS = 16


class TornBody(ValueError):
    """A body differs from what was put."""


class Bodies:
    """Makes the bodies of one producer, all of ``size`` bytes."""

    def __init__(self, producer: int, size: int) -> None:
        chance = random.Random(producer)
        self._producer = producer
        self._fillings = [chance.randbytes(size - LEAST_SIZE) for _ in range(_FILLINGS)]

    def make(self, number: int) -> bytes:
        """The body of the message with that number, stamped with the current time."""
        head = _HEAD.pack(self._producer, number, time.monotonic_ns())
        filling = self._fillings[number % _FILLINGS]
        return head + _CRC.pack(zlib.crc32(filling, zlib.crc32(head))) + filling


def opened(body: bytes, size: int) -> tuple[int, int]:
    """The message's id in the journals, and when it was put, in monotonic ns.

    Raises :class:`TornBody`.
    """
    if len(body) != size:
        raise TornBody(f"a body has {len(body)} bytes, {size} were put")
    producer, number, at = _HEAD.unpack_from(body)
    (crc,) = _CRC.unpack_from(body, _CRC_AT)
    if zlib.crc32(body[LEAST_SIZE:], zlib.crc32(body[:_CRC_AT])) != crc:
        raise TornBody(f"the checksum of message {number} of producer {producer} is wrong")
    return producer << NUMBER_BITS | number, at


_FORK = multiprocessing.get_context("fork")


class WorkerEnded(RuntimeError):
    """A worker ended on its own."""


class WorkerProcesses:
    """The live workers, and the times at which the others were killed.

    A worker calls ``work(*arguments, number)``; the first worker has the number 1.
    """

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        #: When each killed worker was last known to live, in monotonic ns.
        self.killed_at: dict[int, int] = {}
        #: How many workers were started; also the number of the newest.
        self.started = 0
        self._alive: dict[int, tuple[multiprocessing.process.BaseProcess, Callable[..., None]]] = {}

    def start(self, work: Callable[..., None]) -> int:
        """Start another worker and return its number."""
        self.started += 1
        reserve_standard()
        process = _FORK.Process(target=self.run, args=(work, self.started), daemon=True)
        process.start()
        self._alive[self.started] = (process, work)
        return self.started

    def run(self, work: Callable[..., None], worker: int) -> None:
        """Do the work of that worker, in its process."""
        work(*self._arguments, worker)

    @property
    def alive(self) -> list[int]:
        """The workers that were neither killed nor seen to end."""
        return list(self._alive)

    def pid(self, worker: int) -> int:
        """The process id of a live worker."""
        process, _ = self._alive[worker]
        assert process.pid is not None
        return process.pid

    def at(self, work: Callable[..., None]) -> list[int]:
        """The live workers that do that work."""
        return [worker for worker, (_, does) in self._alive.items() if does is work]

    def check(self) -> None:
        """Forget the workers that ended normally. Raises :class:`WorkerEnded` for others."""
        for worker, (process, _) in list(self._alive.items()):
            code = process.exitcode  # read once: it may end at any moment
            if code == 0:
                del self._alive[worker]
                process.close()
            elif code is not None:
                raise WorkerEnded(f"worker {worker} ended by itself with {code}")

    def kill(self, worker: int) -> Callable[..., None]:
        """Kill a worker; returns its work. Raises :class:`WorkerEnded` if it had already ended."""
        process, work = self._alive.pop(worker)
        if process.exitcode is not None:
            raise WorkerEnded(f"worker {worker} ended by itself with {process.exitcode}")
        self.killed_at[worker] = time.monotonic_ns()
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise WorkerEnded(f"worker {worker} ended by itself with {process.exitcode}")
        process.close()
        return work

    def kill_all(self) -> None:
        """Kill all remaining workers, whatever their state."""
        for process, _ in self._alive.values():
            process.kill()
            process.join()
            process.close()
        self._alive.clear()

    @property
    def killed(self) -> int:
        """How many workers were killed."""
        return len(self.killed_at)


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
    """Put the bodies, and return how many of them, from the first on, were put.

    A process that holds the lock for long only delays a put or a get: the parent watches whether
    anything moves at all.
    """
    try:
        if len(bodies) > 1:
            return queue.put_many(bodies, True, _SLICE, group=group)
        queue.put(bodies[0], True, _SLICE, group=group)
    except (Full, LockTimeout):
        return 0
    return 1


def consume(job: Job, worker: int, row: int) -> None:
    """Get, verify and acknowledge messages until the counters say drain and none is left."""
    with _at_work(job, worker) as queue:
        consumer = _Consumer(job, worker, row)
        while not job.abandoned:
            messages = _get(queue, job.plan.batch)
            if messages:
                consumer.take(queue, messages)
            elif job.counters.draining and _is_drained(queue):
                break
        consumer.close()


def _get(queue: api.Queue, batch: int) -> Sequence[api.Message]:
    try:
        if batch > 1:
            return queue.get_many(batch, _SLICE)
        return (queue.get(timeout=_SLICE),)
    except (Empty, LockTimeout):
        return ()


def _is_drained(queue: api.Queue) -> bool:
    stats = queue.stats()
    return not (stats.depth or stats.delayed or stats.in_flight or stats.dying)


class _Consumer:
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
        reserve_standard()
        (job.directory / f"{worker}.failure").write_text(traceback.format_exc())
        os._exit(1)


def on_row(row: int) -> Callable[..., None]:
    """A consumer that counts in that row of the counters."""

    def work(job: Job, worker: int) -> None:
        consume(job, worker, row)

    return work
