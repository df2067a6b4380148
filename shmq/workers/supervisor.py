"""The supervisor of workers: starts, replaces and ends the processes of one or several plans."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import wait

from shmq.errors import (
    ConnectionLost,
    InvalidOption,
    LockTimeout,
    QueueDeleted,
    ShmqError,
    ShuttingDown,
)
from shmq.host.supervision.child_process import ChildProcess, WakeupPipe, kill_all
from shmq.host.supervision.signals import caught, ended_by
from shmq.native import _clock as time
from shmq.native._core import check_seconds
from shmq.workers.deaths import CurrentDelivery, OomKills, WatchedQueue, describe_death
from shmq.workers.plan import Plan
from shmq.workers.process import Ending, main
from shmq.workers.ticker import Ticker
from shmq.workers.timings import Timings

log = logging.getLogger("shmq.workers")


class _WorkerProcess(ChildProcess):
    """One of a plan's processes."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        queue: WatchedQueue,
        oom_kills: OomKills,
        timings: Timings | None,
    ) -> None:
        self.plan = plan
        self.queue = queue
        self.timings = timings
        self._oom_kills = oom_kills
        self._oom_kills_before = 0
        self._delivery = delivery = CurrentDelivery(2)
        who = f"worker {plan.queue}/{number}"
        super().__init__(
            who,
            main,
            lambda: (who, plan, os.getpid(), delivery, timings),
            log,
            expected={*Ending},
            renewed={Ending.DRAINED, Ending.RECYCLED},
        )

    def start(self) -> bool:
        self._oom_kills_before = self._oom_kills.count()
        started = super().start()
        if self.process is not None and self.process.pid is not None:
            self.queue.watch(self.process.pid)
        return started

    def reap(self) -> int | None:
        pid = None if self.process is None else self.process.pid
        code = super().reap()
        if code is not None and pid is not None:
            self._report_death(pid, code)
        return code

    def kill(self) -> None:
        pid = None if self.process is None else self.process.pid
        super().kill()
        if pid is not None:
            self._report_death(pid, -signal.SIGKILL)

    def _report_death(self, pid: int, code: int) -> None:
        receipt, after = self._delivery.take()
        out_of_memory = code == -signal.SIGKILL and self._oom_kills.explains_death(
            self._oom_kills_before
        )
        reason = describe_death(
            code, timeout=self.plan.timeout, after=after, out_of_memory=out_of_memory
        )
        self.queue.report_death(pid, receipt, reason)


class Supervisor:
    """Runs the processes of the ``plans``. For one thread; `run` until `stop`.

    ``drain_timeout`` is how long the current messages may take when it ends, in seconds; None:
    as long as they need. With ``timed``, `timings` has how long the messages took. Raises
    :class:`~shmq.InvalidOption`.
    """

    def __init__(
        self, plans: Sequence[Plan], drain_timeout: float | None = None, *, timed: bool = False
    ) -> None:
        if not plans:
            raise InvalidOption("no workers: give one or more")
        if drain_timeout is not None:
            check_seconds("drain_timeout", drain_timeout, 0.0)
        self._plans = plans
        self._drain_timeout = drain_timeout
        self._queues = [WatchedQueue(plan) for plan in plans]
        scheduled = [plan for plan in plans if plan.schedule is not None]
        _check_schedules(scheduled)
        self._tickers = [Ticker(plan, plan.schedule) for plan in scheduled if plan.schedule]
        oom_kills = OomKills()
        self._children = [
            _WorkerProcess(plan, n + 1, queue, oom_kills, Timings() if timed else None)
            for plan, queue in zip(plans, self._queues, strict=True)
            for n in range(plan.processes)
        ]
        self._wakeup = WakeupPipe()
        self._stopped = False
        self._forced_by = 0
        self._drain_until: float | None = None
        self._draining = False
        self._refusal: ShmqError | None = None

    def run(self) -> None:
        """Run the workers until `stop` is called, or SIGINT, SIGTERM or SIGHUP arrives.

        It also returns when every process has ended because it was idle. A second signal ends
        the processes at once, and raises KeyboardInterrupt or SystemExit, with the code that a
        shell expects. Raises :class:`~shmq.NoSuchQueue`, :class:`~shmq.QueueDeleted`,
        :class:`~shmq.SegmentError`, and :class:`~shmq.ShmqError` if the drain timeout was over
        first.
        """
        try:
            with caught(self._on_signal):
                for queue in self._queues:
                    queue.attach()
                for ticker in self._tickers:
                    ticker.begin()
                while self._do_step():
                    self._sleep()
        finally:
            kill_all(self._children)
            for ticker in self._tickers:
                ticker.close()
            for queue in self._queues:
                queue.close()
            self._wakeup.close()
        if self._refusal is not None:
            raise self._refusal

    def timings(self) -> list[tuple[str, str, list[Timings]]]:
        """Of each plan the namespace, the queue, and the timings of its processes.

        The namespace of a server is "". For any thread.
        """
        return [
            (
                plan.namespace if plan.server is None else "",
                plan.queue,
                [
                    child.timings
                    for child in self._children
                    if child.plan is plan and child.timings is not None
                ],
            )
            for plan in self._plans
        ]

    def stop(self) -> None:
        """Let `run` return when the current messages are done. For any thread."""
        self._stopped = True
        self._wakeup.give()

    def _on_signal(self, number: int) -> None:
        """Handle a signal. A closed terminal may send SIGHUP twice, so it never forces an end."""
        if self._stopped and number != signal.SIGHUP:
            self._forced_by = number
        self.stop()

    def _do_step(self) -> bool:
        """Do what is due; return whether anything is left to wait for."""
        for child in self._children:
            self._restart_ended(child)
        if not self._stopped:
            for ticker in self._tickers:
                ticker.step()
        if self._stopped and not self._draining:
            self._drain()
        if self._forced_by:
            log.warning("second signal: the workers end at once, their messages are returned")
            raise ended_by(self._forced_by)
        left = [child for child in self._children if child.process is not None]
        if left and self._drain_until is not None and time.monotonic() >= self._drain_until:
            self._refusal = self._refusal or ShmqError(
                f"the current messages were not done within drain_timeout="
                f"{self._drain_timeout} s: processes killed: {len(left)} of {len(self._children)}"
            )
            return False
        return bool(left) or any(child.due is not None for child in self._children)

    def _restart_ended(self, child: _WorkerProcess) -> None:
        code = child.reap()
        if code is not None and not self._draining and code != Ending.IDLE:
            if code == Ending.NO_QUEUE:
                self._stop_if_deleted(child)
            child.replace(code)
        if child.due is not None and child.due <= time.monotonic() and not self._stopped:
            child.start()

    def _stop_if_deleted(self, child: _WorkerProcess) -> None:
        """Stop if the queue was deleted, but not if it was created again."""
        try:
            child.queue.attach()
        except (ConnectionLost, LockTimeout, ShuttingDown):  # unknown; its processes try again
            return
        except ShmqError as error:
            self._refusal = self._refusal or _describe_deleted(child.plan, error)
            self._stopped = True

    def _drain(self) -> None:
        self._draining = True
        for child in self._children:
            child.drain()
        log.info("draining: waiting for the current messages")
        if self._drain_timeout is not None:
            self._drain_until = time.monotonic() + self._drain_timeout

    def _sleep(self) -> None:
        """Sleep until a process ends or has to start, a run is due, or a signal arrives."""
        times = [child.due for child in self._children if child.due is not None]
        if self._drain_until is not None:
            times.append(self._drain_until)
        pauses = [max(0.0, each - time.monotonic()) for each in times]
        if not self._stopped:
            pauses += [ticker.pause() for ticker in self._tickers]
        timeout = min(pauses, default=None)
        wait(
            [self._wakeup.fileno(), *(p.process.sentinel for p in self._children if p.process)],
            timeout,
        )
        self._wakeup.clear()


def _check_schedules(plans: Sequence[Plan]) -> None:
    """Raise InvalidOption if a queue has two schedules: each handler would get both."""
    handlers: dict[tuple[object, ...], str] = {}
    for plan in plans:
        key = plan.server, plan.namespace, plan.queue
        if key in handlers:
            raise InvalidOption(
                f"queue {plan.queue!r} has two schedules, of {handlers[key]} and {plan.handler}: "
                f"use a queue for each"
            )
        handlers[key] = plan.handler


def _describe_deleted(plan: Plan, error: ShmqError) -> ShmqError:
    if isinstance(error, LookupError):
        return QueueDeleted(f"queue {plan.queue!r} was deleted: its workers have ended")
    return error
