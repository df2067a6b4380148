"""What waits on one wakeup: the tasks of an event loop, or the descriptors of a process."""

from __future__ import annotations

import os
import weakref
from typing import Self

from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core

#: Those that have not ended, by namespace and the loop's id; 0 for descriptors. A loop keeps its
#: set, and a thread its own.
sets: weakref.WeakValueDictionary[tuple[str, int], WaitSet] = weakref.WeakValueDictionary()


class WaitSet(_core.WaitSet):
    """A wait set on a wakeup of this process."""

    def __new__(cls, namespace: Namespace, *_: object) -> Self:
        wakeup = WakeupPool.of(namespace).take()
        return super().__new__(cls, wakeup, new_lock())  # type: ignore[call-arg]

    def rest(self) -> None:
        """End, unless it is in use."""
        raise NotImplementedError

    def forget(self) -> None:
        """In the child of a fork: what it has belongs to the parent."""


def wake_all(namespace: Namespace) -> None:
    """Have the waiters of a handle of that namespace that was closed notified."""
    for waits in _list_of(namespace):
        waits.wake()


def rest(namespace: Namespace) -> None:
    """End the namespace's sets and remove its wakeups, unless they are in use."""
    for waits in _list_of(namespace):
        waits.rest()
    WakeupPool.of(namespace).remove_idle()


def _list_of(namespace: Namespace) -> list[WaitSet]:
    return [waits for (name, _), waits in list(sets.items()) if name == namespace.name]


def _forget_all() -> None:
    for waits in list(sets.values()):
        waits.forget()
    sets.clear()


os.register_at_fork(after_in_child=_forget_all)
