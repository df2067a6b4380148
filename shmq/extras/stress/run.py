"""Starts the workers, kills some if the plan says so, and verifies the result."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shmq import api
from shmq.client.local.queue import LocalQueue
from shmq.errors import InvalidOption, MessageTooLarge
from shmq.extras.stress.counters import BUCKETS, SharedCounters, sum_counts, upper_bound
from shmq.extras.stress.journal import NUMBER_BITS, WRONGS, CheckResult, count_once, judge, read_all
from shmq.extras.stress.plan import Plan, Result, Sample, latencies
from shmq.extras.stress.workers import (
    Job,
    WorkerEnded,
    WorkerProcesses,
    failure_of,
    on_row,
    produce,
)

#: After this many seconds without progress the run counts as hanging.
PATIENCE = 30.0

_LOOK = 0.01
_SAMPLE = 1.0

#: The longest time between two kills, in seconds.
_LONGEST_PAUSE = 0.2


def run(
    reach: Callable[[], api.Broker],
    name: str | None,
    plan: Plan,
    watch: Callable[[Sample], None],
    stopped: Callable[[], bool],
) -> Result:
    """Carry out the plan on the queue ``name``, or on a fresh one that is deleted at the end.

    ``reach()`` makes a broker; every worker calls it for its own. ``watch`` is called with a
    sample every second and at the end. Raises KeyboardInterrupt once ``stopped()`` is true,
    InvalidOption for a queue whose options or messages prevent verification, and what
    attaching to the queue raises.
    """
    with reach() as broker, contextlib.ExitStack() as stack:
        if name is None:
            queue = stack.enter_context(_fresh_queue(broker, plan))
        else:
            queue = stack.enter_context(broker.queue(name))
            _reject_unfit(queue, plan)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shmq-stress-")))
        directory.chmod(0o700)  # whatever the umask
        counters = SharedCounters(plan.producers + plan.consumers)
        job = Job(reach, queue.name, plan, counters, directory, os.getpid())
        return _Run(job, queue, watch).carry_out(stopped)


@contextlib.contextmanager
def _fresh_queue(broker: api.Broker, plan: Plan) -> Iterator[api.Queue]:
    """A new queue for the run, which loses no message and lets no lease expire."""
    arena = max(16 << 20, min(64 << 20, (plan.size + 128) << 14), 16 * plan.size)
    name = f"stress-{os.getpid()}-{secrets.token_hex(3)}"
    with broker.create_queue(
        name, arena_bytes=arena, visibility_timeout=3600, max_deliveries=None, dead_letter=None
    ) as queue:
        try:
            yield queue
        finally:
            broker.delete_queue(name)


def _reject_unfit(queue: api.Queue, plan: Plan) -> None:
    """Raises InvalidOption, MessageTooLarge."""
    stats, options = queue.stats(), queue.options
    held = stats.depth + stats.delayed + stats.in_flight + stats.dying
    reasons = {
        f"holds {held} messages, which the consumers would take": held > 0,
        "has a ttl, so messages may be lost": options.ttl is not None,
        "drops its oldest messages when it is full": options.overflow == "drop-oldest",
        "has a delivery limit, which kills would use up": plan.kill
        and options.max_deliveries is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InvalidOption(
                f"queue {queue.name!r} {reason}: take another one, or leave it to shmq stress "
                f"to make one"
            )
    if plan.size > options.max_message_bytes:
        raise MessageTooLarge(
            f"a body of {plan.size} bytes can never fit into queue {queue.name!r}: "
            f"max_message_bytes={options.max_message_bytes}"
        )


class _Run:
    """One run, from its first worker to its result.

    It does not touch the queue while the workers run: a stopped worker may hold the lock.
    """

    def __init__(self, job: Job, queue: api.Queue, watch: Callable[[Sample], None]) -> None:
        self._job = job
        self._plan = job.plan
        self._counters = job.counters
        self._queue = queue
        self._watch = watch
        self._workers = WorkerProcesses(job)
        self._chance = random.Random(job.plan.seed)
        self._rows: dict[int, int] = {}
        self._expired = queue.stats().expired
        self._began = self._moved_at = self._kill_at = time.monotonic()
        self._put_until: float | None = None
        self._moved = 0
        self._last = Sample(
            seconds=0,
            put=0,
            got=0,
            put_per_second=0,
            got_per_second=0,
            backlog=0,
            killed=0,
            latency={},
        )
        self._last_counts = [0] * BUCKETS

    def carry_out(self, stopped: Callable[[], bool]) -> Result:
        """See :func:`run`."""
        problems = []
        try:
            for _ in range(self._plan.producers):
                self._workers.start(produce)
            for row in range(self._plan.producers, self._counters.rows):
                self._start_consumer(row)
            while self._check_workers():
                if stopped():
                    raise KeyboardInterrupt
                time.sleep(_LOOK)
        except WorkerEnded as error:
            problems.append(self._explain_end(error))
        finally:
            self._workers.kill_all()
        ended = time.monotonic()
        self._sample(ended)
        return self._result(ended, problems)

    def _start_consumer(self, row: int) -> None:
        self._rows[self._workers.start(on_row(row))] = row

    def _check_workers(self) -> bool:
        """Check on the workers; False once all have ended. Raises WorkerEnded."""
        now = time.monotonic()
        self._workers.check()
        if self._plan.seconds is not None and now - self._began >= self._plan.seconds:
            self._counters.stop()
        if self._put_until is None and not self._workers.at(produce):
            self._put_until = now
            self._counters.drain()
        if self._put_until is not None and not self._workers.alive:
            return False
        if self._plan.kill and self._put_until is None and now >= self._kill_at:
            self._kill_one(now)
        if now - self._began - self._last.seconds >= _SAMPLE:
            self._sample(now)
        self._check_progress(now)
        return True

    def _kill_one(self, now: float) -> None:
        worker = self._chance.choice([one for one in self._workers.alive if one in self._rows])
        self._workers.kill(worker)
        self._start_consumer(self._rows[worker])
        self._kill_at = now + self._chance.random() * _LONGEST_PAUSE

    def _check_progress(self, now: float) -> None:
        moved = self._put + self._got
        if moved != self._moved:
            self._moved, self._moved_at = moved, now
        elif now - self._moved_at > PATIENCE:
            raise WorkerEnded(f"nothing has moved for {PATIENCE:g} s")

    def _explain_end(self, error: WorkerEnded) -> str:
        for worker in range(1, self._workers.started + 1):
            why = failure_of(self._job, worker)
            if why is not None:
                return f"{'consumer' if worker in self._rows else 'producer'} {worker}: {why}"
        return str(error)

    # ---- numbers ----

    @property
    def _put(self) -> int:
        return sum(self._counters.count_of(row) for row in range(self._plan.producers))

    @property
    def _got(self) -> int:
        return sum(self._counters.count_of(row) for row in self._consumer_rows)

    @property
    def _consumer_rows(self) -> range:
        return range(self._plan.producers, self._counters.rows)

    def _merge_counts(self) -> list[int]:
        return sum_counts([self._counters.histogram_of(row) for row in self._consumer_rows])

    def _find_longest(self) -> int:
        return max(self._counters.longest_of(row) for row in self._consumer_rows)

    def _sample(self, now: float) -> None:
        put, got, counts = self._put, self._got, self._merge_counts()
        last, lasted = self._last, max(now - self._began - self._last.seconds, 1e-9)
        since = [new - old for new, old in zip(counts, self._last_counts, strict=True)]
        longest = max((bucket for bucket, count in enumerate(since) if count), default=0)
        self._last_counts = counts
        self._last = Sample(
            seconds=now - self._began,
            put=put,
            got=got,
            put_per_second=(put - last.put) / lasted,
            got_per_second=(got - last.got) / lasted,
            backlog=put - got,
            killed=self._workers.killed,
            latency=latencies(since, upper_bound(longest) if any(since) else 0),
        )
        self._watch(self._last)

    # ---- the end ----

    def _result(self, ended: float, problems: list[str]) -> Result:
        verdict = CheckResult()
        if not problems:
            verdict = self._make_verdict()
            problems = [*_describe(verdict), *self._find_leftovers()]
        plan, lasted = self._plan, ended - self._began
        put_for = (self._put_until or ended) - self._began
        return Result(
            queue=self._queue.name,
            producers=plan.producers,
            consumers=plan.consumers,
            size=plan.size,
            batch=plan.batch,
            promise=_describe_promise(plan),
            seconds=lasted,
            put=self._put,
            got=self._got,
            put_per_second=self._put / put_for,
            got_per_second=self._got / lasted,
            latency=latencies(self._merge_counts(), self._find_longest()),
            redelivered=verdict.redelivered,
            killed=self._workers.killed,
            problems=problems,
        )

    def _make_verdict(self) -> CheckResult:
        promised = {
            producer: self._counters.count_of(producer - 1)
            for producer in range(1, self._plan.producers + 1)
        }
        if not self._plan.careful:
            verdict = count_once(self._job.directory, promised)
        else:
            records = read_all(self._job.directory)
            verdict = judge(records, self._workers.killed_at, promised, self._plan.grouped)
        if self._queue.stats().expired > self._expired:
            # After its lease expires, a message may be redelivered, and after later ones.
            for allowed in (verdict.twice, verdict.held_twice, verdict.out_of_order):
                allowed.clear()
        return verdict

    def _find_leftovers(self) -> list[str]:
        """Problems of the drained queue, such as messages that it still counts."""
        stats, here = self._queue.stats(), isinstance(self._queue, LocalQueue)
        nothing = ["depth", "delayed", "in_flight", "dying", "arena_used"]
        nothing += ["waiting_get"] if here else []  # a server may wait on behalf of clients
        left = {what: number for what in nothing if (number := getattr(stats, what))}
        problems = [f"the emptied queue still has {what} {number}" for what, number in left.items()]
        if not isinstance(self._queue, LocalQueue):  # its segment is on another host
            return problems
        return problems + [f"the segment is damaged: {wrong}" for wrong in self._queue.violations()]


def _describe_promise(plan: Plan) -> str:
    times = "at least once" if plan.kill else "exactly once"
    if plan.grouped:
        return f"{times}, each producer's in order"
    return times if plan.kill else f"{times}, each producer's in order at each consumer"


def _describe(verdict: CheckResult) -> list[str]:
    lines = []
    for kind, found in verdict.wrong().items():
        first = min(found)
        lines.append(
            f"{kind.replace('_', ' ')}: {len(found)} of {verdict.put} messages were "
            f"{WRONGS[kind]}; the first is number {first & ((1 << NUMBER_BITS) - 1)} of "
            f"producer {first >> NUMBER_BITS}"
        )
    return lines
