"""The process of one worker."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
from typing import Any

from shmq.api import Message
from shmq.errors import ConnectionLost, NoSuchQueue, SegmentError, ShuttingDown
from shmq.supervision.log_lines import show_on_stderr
from shmq.supervision.parent_watch import tether
from shmq.supervision.signals import leave_to_the_supervisor
from shmq.workers.handler import Handler, load
from shmq.workers.plan import Plan
from shmq.workers.worker_loop import Ending, WorkerLoop

__all__ = ["main"]

log = logging.getLogger("shmq.workers")


def main(who: str, plan: Plan, supervisor: int) -> None:
    """Work according to the ``plan``; the exit code says why it ended.

    ``supervisor`` is the process that started this one. This process ends with it.
    """
    tether(supervisor)
    leave_to_the_supervisor(lambda: os._exit(Ending.DRAINED))  # there is nothing to clean up yet
    handler = load(plan.handler)
    show_on_stderr("shmq.workers")
    with contextlib.ExitStack() as stack:
        try:
            queue = stack.enter_context(plan.reach()).queue(plan.queue)
        except (NoSuchQueue, SegmentError) as error:
            log.error("%s ends: %s", who, error)
            sys.exit(Ending.NO_QUEUE)
        except (ConnectionLost, ShuttingDown) as error:
            log.error("%s ends: %s", who, error)
            sys.exit(Ending.UNREACHED)
        shift = WorkerLoop(who, plan, queue, _awaiting(handler, stack))
        leave_to_the_supervisor(shift.drain)
        log.info("%s takes messages of queue %r", who, plan.queue)
        sys.exit(shift.run())


def _awaiting(handler: Handler, stack: contextlib.ExitStack) -> Handler:
    """The handler as a plain function: runs the coroutine of a coroutine function to its end."""
    loop: list[Any] = []

    def call(message: Message) -> None:
        result = handler(message)
        if inspect.iscoroutine(result):
            if not loop:
                import asyncio  # noqa: PLC0415 - only coroutine functions need it

                loop.append(stack.enter_context(asyncio.Runner()))
            loop[0].run(result)

    return call
