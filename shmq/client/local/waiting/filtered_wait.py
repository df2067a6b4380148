"""Waiting for a message that matches a filter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native.lock_holder import until_locked

_T = TypeVar("_T")


def wait_filtered(queue: Any, attempt: Callable[[], _T], block: bool, timeout: float | None) -> _T:
    """The first true result of ``attempt()``; its last result if the timeout passed.

    The attempt is repeated for each message that arrives. Consumers without a filter are woken as
    usual: an arriving message wakes all filtered waiters, and none of them instead of another
    consumer.
    """
    until = None if timeout is None else time.monotonic() + timeout
    if block and timeout != 0:
        attempt = functools.partial(until_locked, attempt, until)
    found = attempt()
    if not found:
        queue.look_for_dead()
        found = attempt()
    if found or not block or timeout == 0:
        return found
    wakeups = WakeupPool.of(queue.namespace)
    wakeup = wakeups.take()
    watch = _core.Watch(queue, _core.EVENT_ARRIVED, wakeup)
    try:
        return _watch(watch, _core.Watcher(wakeup), attempt, until)
    finally:
        watch.disarm()
        wakeups.give_back(wakeup)


def _watch(
    watch: _core.Watch, watcher: _core.Watcher, attempt: Callable[[], _T], until: float | None
) -> _T:
    stirs: list[_core.Watch] = [watch]
    while True:
        if stirs:
            if not watch.is_armed:
                until_locked(watch.arm, until)
            found = attempt()
            if found:
                return found
        left = _core.LONG_SLICE if until is None else until - time.monotonic()
        if left <= 0:
            return attempt()
        watcher.sleep(left)
        stirs = watcher.look([watch])
