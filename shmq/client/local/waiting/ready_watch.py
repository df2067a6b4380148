"""The watch of a queue of this host for a descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shmq.client.local.waiting.wait_thread import join
from shmq.client.shared.ready_event import Descriptor, ReadyWatch
from shmq.errors import LockTimeout, ShmqError
from shmq.native import _core


class LocalReadyWatch(ReadyWatch):
    """Implements :class:`shmq.client.shared.ready_event.ReadyWatch`.

    It waits for each message that arrives, as a filtered wait does, and so is never woken in the
    place of a consumer: the owner of a readable descriptor may never look.
    """

    def __init__(self, queue: Any, descriptor: Descriptor) -> None:
        self._queue = queue
        self._descriptor = descriptor
        self._waiter = _core.WaitingDescriptor(self._on_call)
        self._seen_empty = False  # at the last arm, after which no event has come if not called
        self._wait_thread, self._task_queue = join(
            queue.namespace, queue, _core.EVENT_ARRIVED, self._waiter
        )

    def arm(self) -> bool:
        if self._seen_empty and not self._waiter.called:
            return False
        due = self._task_queue.arm(self._waiter)
        self._seen_empty = not self._queue.has_message()
        self._wait_thread.watch_time(due)
        return not self._seen_empty

    def _on_call(self) -> None:
        """Tell, unless the thread was only woken to look when something is due."""
        since = self._descriptor.unsets
        try:
            found = self._queue.has_message() or self.arm()
        except (ShmqError, OSError):
            found = True
        if found:
            self._descriptor.set(since)

    def close(self) -> None:
        self._wait_thread.leave(self._task_queue, self._waiter, False)

    @staticmethod
    def look(queues: Sequence[Any]) -> list[bool | ShmqError]:
        # A queue whose lock is held may have a message.
        return [_can_have_message(queue) for queue in queues]


def _can_have_message(queue: Any) -> bool | ShmqError:
    try:
        return bool(queue.has_message())
    except LockTimeout:
        return True
    except ShmqError as error:
        return error
