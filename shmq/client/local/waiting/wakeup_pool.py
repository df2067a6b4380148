"""The wakeup semaphores of this process: created on demand, reused, removed at the end."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from shmq.errors import NoSpace
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import make_wakeup, remove_wakeup, sweep_wakeups
from shmq.lazy_imports import late_imports
from shmq.native import _core

if TYPE_CHECKING:
    from multiprocessing import util

_known: dict[str, WakeupPool] = {}


class WakeupPool:
    """This process's wakeup semaphores in one namespace, one object for each process: see `of`.

    A semaphore is named by the process's number and its own; neither is ever reused, so a process
    that has opened one may keep it. The child of a fork has none of its parent's.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._numbers = itertools.count()
        self._is_swept = False
        self._idle: list[_core.Wakeup] = []
        self._lock = new_lock()

    @classmethod
    def of(cls, namespace: Namespace) -> WakeupPool:
        """The process's pool in that namespace."""
        return _known.setdefault(namespace.name, cls(namespace))

    def take(self) -> _core.Wakeup:
        """A semaphore for the caller alone, until it gives it back. Raises NoSpace."""
        process = self._namespace.processes.own_number()
        self._remove_dead()
        with self._lock:
            while self._idle:
                wakeup = self._idle.pop()
                if wakeup.process == process:
                    return wakeup
                remove_wakeup(wakeup.name)
            number = next(self._numbers)
        try:
            name = make_wakeup(self._namespace.name, process, number)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise NoSpace(
                f"/dev/shm is full: there is not enough room for a semaphore to wait on, {error}; "
                f"purge or delete queues, or give it more room (in a container: --shm-size)"
            ) from error
        return _core.Wakeup(name, process, number)

    def _remove_dead(self) -> None:
        """Before the first one: remove those of dead processes, and arrange the removal of ours."""
        if not self._is_swept:
            sweep_wakeups(self._namespace.name, self._namespace.processes.is_alive)
            at_the_end(self.remove_idle, 1)
            self._is_swept = True

    def give_back(self, wakeup: _core.Wakeup) -> None:
        """Return a semaphore that is armed nowhere any more."""
        wakeup.sleep(0)  # drop a late wakeup
        with self._lock:
            self._idle.append(wakeup)

    def remove_idle(self) -> None:
        """Remove the semaphores that are not in use."""
        with self._lock:
            while self._idle:
                remove_wakeup(self._idle.pop().name)


def at_the_end(deed: Callable[[], object], priority: int) -> util.Finalize:
    """Run ``deed`` when this process ends normally, in the order of falling priorities.

    The returned object can cancel it. atexit would not do: the children of multiprocessing end
    without it. The child of a fork runs nothing of its parent's.
    """
    with late_imports:
        from multiprocessing import util  # noqa: PLC0415 - heavy, and rarely needed

    return util.Finalize(None, deed, exitpriority=priority)


os.register_at_fork(after_in_child=_known.clear)
