"""The process of a worker: it takes messages and calls the handler until it ends."""

from __future__ import annotations

import contextlib
import enum
import faulthandler
import functools
import inspect
import logging
import os
import random
import sys
from collections.abc import Callable
from typing import Any, Final

from shmq.api import Consumer, Message, Queue
from shmq.api.contract import unwrapped
from shmq.api.message import Reject, Retry, reason_of
from shmq.api.options import QueueOptions
from shmq.client.local.queue import LocalQueue
from shmq.client.shared.outage import Outage
from shmq.client.shared.rpc_server import LeaseKeeper
from shmq.errors import (
    ConnectionLost,
    LeaseExpired,
    LockTimeout,
    NoSuchQueue,
    QueueDeleted,
    SegmentError,
    ShuttingDown,
)
from shmq.host.supervision.signals import end_with_parent, handle_sigterm
from shmq.host.supervision.stderr import show_on_stderr
from shmq.lazy_imports import late_imports
from shmq.native import _clock as time
from shmq.native._core import reserve_standard
from shmq.workers.deaths import CurrentDelivery
from shmq.workers.plan import Handler, Plan, load
from shmq.workers.timings import Outcome, Timings

log = logging.getLogger("shmq.workers")

#: How long one wait lasts before the loop checks whether it has to end, in seconds.
SLICE: Final = 0.1
#: How often a waiting worker tries to claim a fifo queue, in seconds.
ASK_AGAIN: Final = 0.05


class Ending(enum.IntEnum):
    """Why a loop ended, as its process's exit code, which differs from that of any crash."""

    #: It was asked to end.
    DRAINED = 80
    #: No message came for the idle timeout.
    IDLE = 81
    #: It has handled its maximum number of messages.
    RECYCLED = 82
    #: The queue was deleted, or cannot be used.
    NO_QUEUE = 83
    #: The server could not be reached, the connection was lost, or a stopped process holds a lock.
    UNREACHED = 84


class WorkerLoop:
    """Handles one queue's messages in one process, as a plan says. ``who`` is named in the log.

    ``delivery`` has the current message, and ``timings`` gets how long each message took.
    """

    def __init__(
        self,
        who: str,
        plan: Plan,
        queue: Queue,
        handler: Handler,
        delivery: CurrentDelivery,
        timings: Timings | None = None,
    ) -> None:
        self._who = who
        self._plan = plan
        self._queue = queue
        self._handler = handler
        self._delivery = delivery
        self._timings = timings
        self._call = handler if plan.timeout is None else self._call_in_time
        self._keeper = LeaseKeeper(who, lambda: queue.options.visibility_timeout)
        self._outage = Outage(functools.partial(log.warning, "%s waits for the server: %s", who))
        self._draining = False
        self._handled = 0
        self._idle_since = 0.0

    @property
    def _options(self) -> QueueOptions:
        return self._queue.options

    def drain(self) -> None:
        """Let `run` end after the current message. A signal handler may call it."""
        self._draining = True

    def run(self) -> Ending:
        """Work until one of the reasons to end; see `Ending`."""
        with self._keeper:
            try:
                ending = self._wait_for_turn() or self._run_until_end()
            except QueueDeleted as error:
                log.error("%s ends: %s", self._who, error)
                return Ending.NO_QUEUE
            except (ConnectionLost, LockTimeout, ShuttingDown) as error:
                log.error("%s ends: %s", self._who, error)
                return Ending.UNREACHED
        log.info("%s ends, %s: %d handled", self._who, ending.name.lower(), self._handled)
        return ending

    def _wait_for_turn(self) -> Ending | None:
        """Wait for the claim of a fifo queue, of which only one worker is active."""
        if self._plan.mode != "fifo":
            return None
        claimed = unwrapped(self._queue)
        assert isinstance(claimed, LocalQueue)  # the plan has checked that
        while not claimed.claim():
            if self._draining:
                return Ending.DRAINED
            self._queue.qsize()  # raises when the queue is deleted
            time.sleep(ASK_AGAIN)
        log.info("%s is the active worker of queue %r", self._who, self._queue.name)
        return None

    def _run_until_end(self) -> Ending:
        self._idle_since = time.monotonic()
        ending = None
        while ending is None:
            # Prefetched messages are returned, uncounted, when the block is left.
            with self._outage, self._queue.consume(self._plan.prefetch, SLICE) as messages:
                ending = self._take(messages)
        return ending

    def _take(self, messages: Consumer) -> Ending | None:
        ending = self._find_reason_to_end()
        while ending is None:
            message = next(messages, None)
            self._outage.end()
            if message is None:
                return self._find_reason_to_end() or self._check_idle()
            self._handle(message)
            self._handled += 1
            if self._plan.mode == "keyed":
                messages.flush()  # frees the group before the next message is handled
            self._idle_since = time.monotonic()
            ending = self._find_reason_to_end()
        return ending

    def _find_reason_to_end(self) -> Ending | None:
        if self._draining:
            return Ending.DRAINED
        return Ending.RECYCLED if self._handled == self._plan.max_messages else None

    def _check_idle(self) -> Ending | None:
        patience = self._plan.idle_timeout
        over = patience is not None and time.monotonic() - self._idle_since >= patience
        return Ending.IDLE if over else None

    # ---- one message ----

    def _handle(self, message: Message) -> None:
        self._delivery.begin(message)
        self._keeper.keep(message)
        outcome = self._call_handler(message)
        if outcome is not None and self._plan.mode == "fifo":
            outcome = self._pause_before(message, outcome)
        self._keeper.rest()
        if not message.settled:  # the handler may have done that
            try:
                self._settle_once_unlocked(message, outcome)
            except (LeaseExpired, ConnectionLost, LockTimeout) as error:
                log.warning(
                    "%s: message %d cannot be settled: %s", self._who, message.sequence, error
                )
        self._delivery.end()

    def _call_handler(self, message: Message) -> Reject | Retry | None:
        """Run the handler; None: the message was handled."""
        began = time.monotonic()
        named: Outcome = "failed"
        try:
            self._call(message)
            named = "done"
        except Reject as outcome:
            named = "reject"
            log.info("%s: %s rejected: %s", self._who, self._describe(message), outcome)
            return outcome
        except Retry as outcome:
            named = "retry"
            log.info("%s: %s again %s", self._who, self._describe(message), outcome)
            return outcome
        except (Exception, SystemExit) as error:
            log.exception("%s: %s failed", self._who, self._describe(message))
            return _retry(None, error)
        finally:
            if self._timings is not None:
                self._timings.add(named, time.monotonic() - began)
        return None

    def _settle_once_unlocked(self, message: Message, outcome: Reject | Retry | None) -> None:
        """Settle the message, and wait for the lock of a stopped process as long as its lease."""
        until = time.monotonic() + self._options.visibility_timeout
        while True:
            try:
                return self._settle(message, outcome)
            except LockTimeout:
                if self._draining or time.monotonic() >= until:
                    raise

    @staticmethod
    def _settle(message: Message, outcome: Reject | Retry | None) -> None:
        if outcome is None:
            message.ack()
        elif isinstance(outcome, Reject):
            message.reject(reason_of(outcome))
        else:
            message.nack(outcome.delay, error=reason_of(outcome))

    def _call_in_time(self, message: Message) -> None:
        """Run the handler; at the timeout end this process, with all threads' stacks on stderr.

        A thread of faulthandler does that, which no handler can block.
        """
        assert self._plan.timeout is not None
        self._delivery.call()
        faulthandler.dump_traceback_later(self._plan.timeout, exit=True, file=2)
        try:
            self._handler(message)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _pause_before(self, message: Message, outcome: Reject | Retry) -> Reject | Retry:
        """Wait as long as a nack would delay the message, unless draining.

        So the messages after it wait as well, and a nack without a delay keeps its place.
        """
        last = message.delivery_count == self._options.max_deliveries
        if isinstance(outcome, Reject) or message.settled or last:
            return outcome
        until = time.monotonic() + self._delay(message, outcome)
        while not self._draining and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, SLICE))
        return _retry(0, outcome.__cause__ or outcome.__context__)

    def _delay(self, message: Message, outcome: Retry) -> float:
        if outcome.delay is not None:
            return outcome.delay
        doubled = self._options.retry_delay * 2.0 ** min(message.delivery_count - 1, 64)
        return min(doubled, self._options.retry_delay_max) * random.uniform(0.5, 1)

    def _describe(self, message: Message) -> str:
        most = self._options.max_deliveries
        limit = "" if most is None else f" of {most}"
        return f"message {message.sequence}, delivery {message.delivery_count}{limit},"


def _retry(delay: float | None, cause: BaseException | None) -> Retry:
    outcome = Retry(delay)
    outcome.__cause__ = cause
    return outcome


def main(
    who: str, plan: Plan, supervisor: int, delivery: CurrentDelivery, timings: Timings | None = None
) -> None:
    """Work according to the ``plan``; the exit code says why it ended.

    ``supervisor`` is the process that started this one. This process ends with it.
    """
    end_with_parent(supervisor)
    handle_sigterm(lambda: os._exit(Ending.DRAINED))  # there is nothing to clean up yet
    handler = load(plan.handler)
    show_on_stderr("shmq.workers")
    with contextlib.ExitStack() as stack:
        try:
            queue = stack.enter_context(plan.reach()).queue(plan.queue)
        except (NoSuchQueue, SegmentError) as error:
            log.error("%s ends: %s", who, error)
            sys.exit(Ending.NO_QUEUE)
        except (ConnectionLost, LockTimeout, ShuttingDown) as error:
            log.error("%s ends: %s", who, error)
            sys.exit(Ending.UNREACHED)
        loop_of_worker = WorkerLoop(
            who,
            plan,
            queue,
            _make_synchronous(_trace_handler(queue, handler), stack),
            delivery,
            timings,
        )
        handle_sigterm(loop_of_worker.drain)
        log.info("%s consumes queue %r", who, plan.queue)
        sys.exit(loop_of_worker.run())


def _trace_handler(queue: Queue, handler: Handler) -> Handler:
    """The handler, with a span around each call if the queue is traced."""
    processing: Callable[[Handler], Handler] | None = getattr(queue, "processing", None)
    return handler if processing is None else processing(handler)


def _make_synchronous(handler: Handler, stack: contextlib.ExitStack) -> Handler:
    """The handler as a plain function: runs the coroutine of a coroutine function to its end."""
    loop: list[Any] = []

    def call(message: Message) -> None:
        result = handler(message)
        if inspect.iscoroutine(result):
            if not loop:
                with late_imports:
                    import asyncio  # noqa: PLC0415 - only coroutine functions need it

                reserve_standard()
                loop.append(stack.enter_context(asyncio.Runner()))
            loop[0].run(result)

    return call
