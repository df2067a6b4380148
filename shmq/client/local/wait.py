"""Waiting on many queues at once, like multiprocessing.connection.wait on connections."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator

from shmq import api
from shmq.api.contract import unwrapped
from shmq.client.local.queue import LocalQueue
from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.client.local.waiting.watcher import Watcher
from shmq.errors import InvalidOption, LockTimeout
from shmq.native import _core
from shmq.native.lock_holder import until_locked

__all__ = ["wait"]


def wait(queues: Iterable[api.Queue], timeout: float | None = None) -> list[api.Queue]:
    """Wait until any of the queues has a message; returns those that have one, in the given order.

    ``timeout`` is in seconds; None waits without limit, 0 only checks. The list is empty if it
    passed. Nothing is leased: another consumer may be faster, so take messages with
    ``get(block=False)``. Queues of another namespace than the first one's are checked every 50 ms.
    Raises :class:`~shmq.QueueDeleted` if one of them is deleted meanwhile, :class:`~shmq.ShmqError`
    if its handle is closed, :class:`~shmq.InvalidOption` for an empty list, and TypeError for
    anything but a queue of this host.
    """
    _core.check_timeout(timeout)
    until = None if timeout is None else time.monotonic() + timeout
    given = _checked(queues)
    return [given[queue] for queue in _wait(list(given), timeout, until)]


def _wait(
    watched: list[LocalQueue], timeout: float | None, until: float | None
) -> list[LocalQueue]:
    found = until_locked(lambda: _ready(watched), until)
    if found:
        return found
    for queue in watched:
        queue.look_for_dead()
    found = until_locked(lambda: _ready(watched), until)
    if found or timeout == 0:
        return found
    with _watches(watched) as (watcher, watches):
        stirring = watches
        while True:
            for watch in stirring:
                if not watch.is_armed:
                    until_locked(watch.arm, until)
            stirred = [watch.queue for watch in stirring]
            if until_locked(functools.partial(_ready, stirred), until):
                return _ready(watched)
            left = _core.LONG_SLICE if until is None else until - time.monotonic()
            if left <= 0:
                return []
            watcher.sleep(left)
            stirring = watcher.look(watches)


def _checked(queues: Iterable[api.Queue]) -> dict[LocalQueue, api.Queue]:
    """The queues of this host, each with the handle that was given, which may be a proxy."""
    if isinstance(unwrapped(queues), LocalQueue):
        raise TypeError(f"{queues!r} is one queue, not many: put it in a list")
    watched = {}
    for queue in dict.fromkeys(queues):
        plain = unwrapped(queue)
        if not isinstance(plain, LocalQueue):
            raise TypeError(f"{queue!r:.60} is no queue of this host: wait takes only those")
        watched[plain] = queue
    if not watched:
        raise InvalidOption("queues=[] names no queue to wait for")
    return watched


def _ready(queues: Iterable[LocalQueue]) -> list[LocalQueue]:
    """The queues that have a message. Raises LockTimeout if none has and not all were checked."""
    found: list[LocalQueue] = []
    refusal = None
    for queue in queues:
        try:
            if queue.has_message():
                found.append(queue)
        except LockTimeout as error:
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return found


@contextlib.contextmanager
def _watches(queues: list[LocalQueue]) -> Iterator[tuple[Watcher, list[_core.Watch]]]:
    """A watcher, and a watch for each queue; queues of other namespaces do not wake it."""
    namespace = queues[0].namespace
    wakeups = WakeupPool.of(namespace)
    wakeup = wakeups.take()
    watches = [
        _core.Watch(queue, _core.EVENT_NOT_EMPTY, wakeup if queue.namespace is namespace else None)
        for queue in queues
    ]
    try:
        yield Watcher(wakeup), watches
    finally:
        for watch in watches:
            watch.disarm()
        wakeups.give_back(wakeup)
