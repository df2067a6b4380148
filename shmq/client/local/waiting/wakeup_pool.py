"""The wakeups of this process: created on demand, reused, removed at the end."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from shmq.errors import NoSpace
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.wakeups import make_wakeup, remove_wakeup, sweep_wakeups
from shmq.lazy_imports import late_imports
from shmq.native import _core

if TYPE_CHECKING:
    from multiprocessing import util

_known: dict[str, WakeupPool] = {}


class WakeupPool:
    """This process's wakeups in one namespace, one object for each process: see `of`.

    A wakeup is named by the process's number and its own; neither is ever reused, so a process
    that has opened one may keep it. The child of a fork has none of its parent's.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._numbers = itertools.count()
        self._names: set[str] = set()
        self._idle: list[_core.Wakeup] = []
        self._is_swept = False
        self._lock = new_lock()

    @classmethod
    def of(cls, namespace: Namespace) -> WakeupPool:
        """The process's pool in that namespace."""
        return _known.setdefault(namespace.name, cls(namespace))

    def take(self) -> _core.Wakeup:
        """A wakeup for the caller alone, until it gives it back. Raises NoSpace, OSError."""
        process = self._namespace.processes.own_number()
        self._remove_dead()
        with self._lock:
            while self._idle:
                wakeup = self._idle.pop()
                if wakeup.process == process:
                    return wakeup
                self._remove(wakeup.name)
            number = next(self._numbers)
        try:
            name = make_wakeup(self._namespace.name, process, number)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise NoSpace(
                f"/dev/shm is full: it has no inode left for a FIFO to wait on, {error}; delete "
                f"queues, or mount it with a larger nr_inodes"
            ) from error
        self._names.add(name)
        return _core.Wakeup(name, process, number)

    def _remove_dead(self) -> None:
        """Before the first one: remove those of dead processes, and arrange the removal of ours."""
        if not self._is_swept:
            sweep_wakeups(self._namespace.name, self._namespace.processes.is_alive)
            at_the_end(self._remove_all, 1)
            self._is_swept = True

    def give_back(self, wakeup: _core.Wakeup) -> None:
        """Return a wakeup that is armed nowhere any more."""
        wakeup.clear()
        with self._lock:
            self._idle.append(wakeup)

    def remove_idle(self) -> None:
        """Remove the wakeups that are not in use."""
        with self._lock:
            while self._idle:
                self._remove(self._idle.pop().name)

    def _remove_all(self) -> None:
        with self._lock:
            for name in list(self._names):
                self._remove(name)

    def _remove(self, name: str) -> None:
        self._names.discard(name)
        remove_wakeup(name)


def at_the_end(deed: Callable[[], object], priority: int) -> util.Finalize:
    """Run ``deed`` when this process ends normally, in the order of falling priorities.

    The returned object can cancel it. atexit would not do: the children of multiprocessing end
    without it. The child of a fork runs nothing of its parent's.
    """
    with late_imports:
        from multiprocessing import util  # noqa: PLC0415 - heavy, and rarely needed

    return util.Finalize(None, deed, exitpriority=priority)


os.register_at_fork(after_in_child=_known.clear)
