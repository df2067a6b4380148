"""What the conformance tests share: work in threads, bodies."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

import shmq
from shmq import Message, Queue
from tests.support.waiting import PATIENCE, eventually

P = ParamSpec("P")
T = TypeVar("T")

#: A time that passes within a test, in seconds. What must be done before it has passed is done
#: `in_time`: any thread may be delayed for longer.
SOON = 0.05
#: The same, where it often suffices for a few calls.
MOMENT = 0.4
#: A time that does not pass within a test, in seconds.
LATER = 600.0


def in_time(attempt: Callable[[], T], late: type[Exception] | tuple[type[Exception], ...]) -> T:
    """The result of the first attempt that does not raise ``late``, as it did not come too late."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except late:
            assert time.monotonic() < deadline, "each attempt came too late"


def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Run ``call`` in a thread of its own, which a test that fails need not wait for."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def outcome(future: Future[T]) -> T:
    """What the thread returned or raised, within the patience of a test."""
    return future.result(PATIENCE)


def check_fork_holds_nothing(
    lock: shmq.Lock, timeout: float, close: Callable[[], object] = lambda: None
) -> None:
    """Fail unless the child of a fork can neither release the held lock nor acquire it.

    ``timeout`` is in seconds, of its acquire; the child ends with ``close``.
    """
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            try:
                lock.release()
            except shmq.LockNotHeld:
                status = 2 if lock.acquire(timeout=timeout) else 0
                close()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def getter_asleep(queue: Queue) -> None:
    """Return once a get waits for a message."""
    eventually(lambda: queue.stats().waiting_get > 0, "a get waits for a message")


def putter_asleep(queue: Queue) -> None:
    """Return once a put waits for space."""
    eventually(lambda: queue.stats().waiting_put > 0, "a put waits for space")


def drain(queue: Queue) -> list[Any]:
    """Take and acknowledge all visible messages; returns the bodies in order."""
    bodies = []
    while messages := queue.get_many(1, block=False):
        bodies.append(messages[0].body)
        messages[0].ack()
    return bodies


def lease_all(queue: Queue) -> list[Message]:
    """Lease all visible messages, one by one."""
    leased: list[Message] = []
    while messages := queue.get_many(1, block=False):
        leased += messages
    return leased


def bodies(messages: Iterable[Message]) -> list[Any]:
    return [message.body for message in messages]


def next_message(queue: Queue) -> Message:
    """The next message, for which the patience of a test is waited."""
    return queue.get(timeout=PATIENCE)
