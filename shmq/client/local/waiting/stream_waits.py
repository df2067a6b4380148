"""The waits of an event loop's tasks for the records of a stream, without a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from shmq.client.local.waiting.loop_waits import LoopWaits, Source
from shmq.client.shared import loop_timer
from shmq.errors import ShmqError
from shmq.native import _clock as time
from shmq.native import _core, _stream


class _Place(NamedTuple):
    """What a task waits for: a record at or after these offsets, or another shape."""

    offsets: Mapping[int, int]
    shape: tuple[int, int]


class StreamWaits(Source):
    """Wakes the tasks of one event loop that wait for records by one handle of a stream.

    The loop has a party in the stream as long as one of them waits. An append to an armed partition
    disarms the party and posts the loop's wakeup. Then the party and the partitions are armed
    again before the check for each task, so that a record which the check misses posts the wakeup
    again. A post may be lost with an appender that dies, or if the stream has no party left: all
    tasks are also checked at the end of each slice.
    """

    def __init__(self, stream: Any, wakeup: _core.Wakeup, lock: threading.RLock) -> None:
        self._stream = stream
        self._watch = _stream.LoopWatch(stream.control, wakeup.process, wakeup.number)
        #: A task that the garbage collector ends leaves in whatever thread runs the collector.
        self._lock = lock
        self._waiters: dict[asyncio.Future[None], _Place] = {}
        #: When all tasks are checked again, on time.monotonic().
        self._check_at = time.monotonic() + _core.SLICE
        self._is_guarded = False

    @property
    def is_idle(self) -> bool:
        return not self._waiters

    def join(self, future: asyncio.Future[None], offsets: Mapping[int, int]) -> float:
        """Complete the future once there may be a record; return when to poll at the latest."""
        place = _Place(offsets, self._stream.control.shape)
        with self._lock:
            self._waiters[future] = place
            self._arm(offsets)
        if self._is_over(place):
            future.set_result(None)
        return self._check_at

    def leave(self, future: asyncio.Future[None]) -> None:
        """Remove a task, which has its answer or waits no more. From any thread."""
        with self._lock:
            self._waiters.pop(future, None)
            if not self._waiters:
                self._watch.leave()

    def poll(self) -> float:
        if time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + _core.SLICE  # also after an error
            self._check_at = time.monotonic() + self._ensure_guard()
        elif self._watch.is_armed and not self._stream.closed:
            return self._check_at
        with self._lock:
            waiting = {at: place for at, place in self._waiters.copy().items() if not at.done()}
            if waiting:
                self._arm({partition for place in waiting.values() for partition in place.offsets})
        for future, place in waiting.items():
            if self._is_over(place):
                future.set_result(None)
        return self._check_at

    def end(self) -> None:
        with self._lock:
            self._waiters.clear()
            self._watch.leave()

    def _arm(self, partitions: Collection[int]) -> None:
        self._watch.arm()  # before the partitions: see shmq/core/stream/wait.c
        for partition in partitions:
            self._stream.logs[partition].arm()

    def _is_over(self, place: _Place) -> bool:
        stream = self._stream
        try:
            return (
                stream.closed
                or stream.control.shape != place.shape
                or any(stream.logs[at].reaches(offset) for at, offset in place.offsets.items())
            )
        except ShmqError:  # the task gets it by its next read
            return True

    def _ensure_guard(self) -> float:
        """Make sure that deaths are noticed; return for how long no check is needed."""
        guarded, was_guarded = self._stream.is_guarded(), self._is_guarded
        self._is_guarded = guarded
        if not (guarded and was_guarded):  # a guardian settles what those leave who die later
            with contextlib.suppress(ShmqError, OSError):  # it is tried again
                self._stream.settle_dead()
        return _core.LONG_SLICE if guarded and self._watch.has_party else _core.SLICE


async def wait_for_any(stream: Any, offsets: Mapping[int, int], timeout: float | None) -> bool:
    """Whether one of these partitions has a record at or after its offset, in time.

    Also true once the stream has got partitions or was deleted, or its handle was closed.
    """
    loop = asyncio.get_running_loop()
    waits = LoopWaits.of(stream.namespace, loop)
    tasks = waits.source_of(stream, lambda wakeup: StreamWaits(stream, wakeup, waits.lock))
    future: asyncio.Future[None] = loop.create_future()
    try:
        waits.watch_time(tasks.join(future, dict(offsets)))
        return await loop_timer.wait(future, timeout)
    finally:
        tasks.leave(future)
        waits.drop_idle(stream)
