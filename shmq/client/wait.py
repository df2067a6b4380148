"""Waiting on many queues at once, like multiprocessing.connection.wait on connections."""

from __future__ import annotations

import contextlib
import functools
import math
import select
from collections.abc import Iterable, Iterator
from typing import Any

from shmq import api
from shmq.client.local.queue import LocalQueue
from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.client.shared.ready_event import ReadyEvent, look, watchable
from shmq.errors import LockTimeout, ShmqError
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native.lock_holder import until_locked


def wait(queues: Iterable[api.Queue], timeout: float | None = None) -> list[api.Queue]:
    """Wait until any of the queues has a message; returns those that have one, in the given order.

    ``timeout`` is in seconds; None waits without limit, 0 only checks. The list is empty if it
    passed. Nothing is leased: another consumer may be faster, so take messages with
    ``get(block=False)``. The queues may be local and remote ones; of local queues alone, those of
    another namespace than the first one's are checked every 50 ms. Raises
    :class:`~shmq.QueueDeleted` if one of them is deleted in the meantime, :class:`~shmq.ShmqError`
    if its handle is closed, :class:`~shmq.Unsupported` if its server cannot do it,
    :class:`~shmq.ConnectionLost`, :class:`~shmq.InvalidOption` for an empty list, and TypeError for
    anything but a queue.
    """
    timeout = _core.check_timeout(timeout)
    until = None if timeout is None else time.monotonic() + timeout
    given = watchable(queues)
    if all(isinstance(queue, LocalQueue) for queue in given):
        return [given[queue] for queue in _wait(list(given), timeout, until)]
    return [given[queue] for queue in _wait_for_all_kinds(list(given), until)]


def _wait_for_all_kinds(queues: list[Any], until: float | None) -> list[Any]:
    """The same for remote queues, and for local ones beside them."""
    found = _find_ready(queues)
    if found or (until is not None and until <= time.monotonic()):
        return found
    with ReadyEvent(queues) as event:
        poller = select.poll()
        poller.register(event.fileno(), select.POLLIN)
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            poller.poll(None if left is None else math.ceil(left * 1000))
            found = _find_ready(queues)
            if found or left == 0.0:
                return found
            event.clear()


def _find_ready(queues: list[Any]) -> list[Any]:
    """The queues that may have a message. Raises what the next get of one of them would raise."""
    looked = look(queues)
    for seen in looked.values():
        if isinstance(seen, ShmqError):
            raise seen
    return [queue for queue in queues if looked[queue]]


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
def _watches(queues: list[LocalQueue]) -> Iterator[tuple[_core.Watcher, list[_core.Watch]]]:
    """A watcher, and a watch for each queue; queues of other namespaces do not wake it."""
    namespace = queues[0].namespace
    wakeups = WakeupPool.of(namespace)
    wakeup = wakeups.take()
    watches = [
        _core.Watch(queue, _core.EVENT_NOT_EMPTY, wakeup if queue.namespace is namespace else None)
        for queue in queues
    ]
    try:
        yield _core.Watcher(wakeup), watches
    finally:
        for watch in watches:
            watch.disarm()
        wakeups.give_back(wakeup)
