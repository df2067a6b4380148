"""The decorator that declares handlers, and the function that runs them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import os
from collections.abc import Callable
from typing import Any

from shmq.api import Message
from shmq.api.names import chosen_namespace
from shmq.errors import InvalidOption
from shmq.lazy_imports import late_imports
from shmq.workers.plan import Handler, Mode, Plan, load, name_of
from shmq.workers.schedule import Missed, declare_schedule


class Worker:
    """A handler that was declared with :func:`worker`. Calling it calls the function."""

    def __init__(self, handler: Handler, queue: str, namespace: str | None, **how: Any) -> None:
        self.handler = handler
        #: None: the default of `connect`.
        self.namespace = namespace
        self._plan = Plan(handler=name_of(handler), queue=queue, **how)
        functools.update_wrapper(self, handler)

    def __call__(self, message: Message) -> Any:
        """Call the handler."""
        return self.handler(message)

    @property
    def plan(self) -> Plan:
        """The worker's plan.

        Raises :class:`~shmq.InvalidOption` if the handler cannot be imported by its name.
        """
        found = load(self._plan.handler)
        if found is not self and found is not self.handler:
            raise InvalidOption(
                f"handler {self._plan.handler!r} names another object by now: give each handler a "
                f"name of its own"
            )
        url = os.environ.get("SHMQ_URL")
        if url and self.namespace is None:
            with late_imports:
                from shmq.client.remote.address import Target  # noqa: PLC0415 - with a server alone

            return dataclasses.replace(self._plan, server=Target.of(url, None, None, 5.0, 30.0))
        return dataclasses.replace(self._plan, namespace=chosen_namespace(self.namespace))

    def run(self, *, drain_timeout: float | None = None) -> None:
        """`run` this worker alone."""
        run(self, drain_timeout=drain_timeout)

    def __repr__(self) -> str:
        return f"<Worker {self._plan.handler!r} of queue {self._plan.queue!r}>"


def worker(
    queue: str,
    *,
    processes: int = 1,
    mode: Mode = "parallel",
    prefetch: int = 1,
    max_messages: int | None = None,
    timeout: float | None = None,
    idle_timeout: float | None = None,
    namespace: str | None = None,
    schedule: str | None = None,
    every: float | dt.timedelta | None = None,
    timezone: str | None = None,
    missed: Missed = "once",
) -> Callable[[Handler], Worker]:
    """Declare the decorated function the handler of the queue's messages.

    It is called with one :class:`~shmq.Message` at a time in each of ``processes``
    processes, and may be a coroutine function. Returning acknowledges the message; an
    exception returns it to the queue after its back-off; :class:`Retry` and
    :class:`Reject` say otherwise. The lease is prolonged while the handler runs.

    ``mode``: ``"parallel"``, ``"keyed"`` (a group's messages in order, the next one available
    as soon as one is done) or ``"fifo"`` (one message at a time, in the queue's order, over
    all fifo workers of the queue). ``prefetch``: messages leased at a time, 1 with fifo.
    ``max_messages``: a process is replaced after so many. ``timeout``: after so many seconds
    with one message its process is ended, which counts as a delivery. ``idle_timeout``: a
    process that got no message for so many seconds ends.

    With a ``schedule``, a cron expression in a ``timezone`` (by default UTC), or with ``every``, an
    interval in seconds or as a timedelta, of 1 s at least, the supervisors put a message into the
    queue at each of these times: its body is None, and its header ``scheduled_at`` has the time in
    ISO 8601. However many supervisors run, on any hosts, each time has one message. ``missed`` is
    what happens to times that have passed while no supervisor ran, or the queue was full:
    ``"once"`` puts one message for all of them, ``"skip"`` none for those over 60 s ago. A queue
    has one schedule.

    Raises :class:`~shmq.InvalidName`, :class:`~shmq.InvalidOption`, and
    :class:`~shmq.Unsupported` for a cron expression if ``shmq[schedule]`` is not installed.
    """
    planned = declare_schedule(schedule, every, timezone, missed)

    def declare(handler: Handler) -> Worker:
        return Worker(
            handler,
            queue,
            namespace,
            processes=processes,
            mode=mode,
            prefetch=prefetch,
            max_messages=max_messages,
            timeout=timeout,
            idle_timeout=idle_timeout,
            schedule=planned,
        )

    return declare


def run(*workers: Worker, drain_timeout: float | None = None) -> None:
    """Run the workers until SIGTERM or Ctrl-C, then let them finish their current messages.

    A script must call this behind ``if __name__ == "__main__"``, because each process imports
    it. ``drain_timeout``, in seconds, bounds how long they may take; a second signal ends them
    at once. A process that dies is replaced. It also returns when every process has ended
    after its idle timeout. Raises :class:`~shmq.NoSuchQueue`,
    :class:`~shmq.QueueDeleted`, :class:`~shmq.SegmentError`,
    :class:`~shmq.InvalidOption`, and :class:`~shmq.ShmqError` after the drain timeout.
    """
    # Only programs that run workers should load multiprocessing.
    with late_imports:
        from shmq.host.supervision.stderr import show_on_stderr  # noqa: PLC0415
        from shmq.workers.supervisor import Supervisor  # noqa: PLC0415

    plans = [worker.plan for worker in workers]
    show_on_stderr("shmq.workers")
    Supervisor(plans, drain_timeout).run()
