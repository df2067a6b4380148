"""The guardians of a namespace: threads that notice the deaths of its processes for all sleepers.

A process that has slept for 50 ms becomes a guardian, if fewer than four others are. Its thread
sleeps until the kernel reports that a process closed the namespace's file, which every process has
open until its end (`shmq.native._core.FileWatch`). Then it returns to each queue what dead
processes held there, which wakes the sleepers, and wakes those that wait for a stream. So nobody
wakes while nothing happens, and a death is noticed at once, by a thread that needs no CPU time
before.

There are several guardians, because one may be stopped, or die itself. If nobody has taken a
place, the next process that has slept for a slice takes it. If all guardians died at the same
moment, or are stopped, or a process died whose open file a child of it still shares (one that was
forked without Python's knowledge), the sleepers that watch notice a death when their slice ends,
after 2 s at most: see shmq/core/queue/wait.h.

Where the kernel grants no watch (a user has 128 by default), the process is not a guardian. If
there is not an other either, its sleepers look for dead processes every 50 ms.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable
from threading import Lock, Thread, active_count
from typing import Final

from shmq.errors import ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.lazy_imports import before_fork
from shmq.native import _clock as time
from shmq.native import _core

log = logging.getLogger("shmq")

#: Returns what dead processes held; whether nothing is left to return.
_ReturnAll = Callable[[Namespace], bool]

#: How long a guardian stays after a sleeper has asked last, in seconds: two of the longest slices.
_LINGER: Final = 2 * _core.LONG_SLICE
#: The shortest time between two looks, in seconds: processes may end in quick succession.
_PAUSE: Final = 0.02
#: How long it waits for the lock of one queue, in seconds, and how often it tries again.
_LOCK_WAIT: Final = 0.02
_TRIES: Final = 10
#: How long a fork waits for the thread to end, in seconds.
_END_WAIT: Final = 0.5

_guardians: dict[str, _Guardian] = {}


def is_kept(namespace: Namespace, return_all: _ReturnAll) -> bool:
    """Whether a process watches for deaths in the namespace; this one does from now on, if it may.

    To be asked by a thread that is about to sleep for up to `shmq.native._core.LONG_SLICE`.
    """
    guardian = _guardians.get(namespace.name)
    if guardian is None:
        guardian = _guardians.setdefault(namespace.name, _Guardian(namespace, return_all))
    return guardian.is_kept()


class _Guardian:
    """This process's part in guarding one namespace."""

    def __init__(self, namespace: Namespace, return_all: _ReturnAll) -> None:
        self._namespace = namespace
        self._return_all = return_all
        self._lock = Lock()
        self._thread: Thread | None = None
        self._watch: _core.FileWatch | None = None
        self._needed_until = 0.0

    def is_kept(self) -> bool:
        """See the function of that name."""
        self._needed_until = time.monotonic() + _LINGER
        with self._lock:
            if self._watch is not None and not self._namespace.roles.is_guardian:
                self._watch.wake()  # it watches a file that was removed: it ends
                self._thread = self._watch = None
            return self._thread is not None or self._begin()

    def _begin(self) -> bool:
        try:
            path = self._namespace.roles.become_guardian()
            if path is None:
                return True  # others are, or nobody needs to be
            self._watch = _core.FileWatch(path)
            self._thread = Thread(
                target=self._run,
                args=(self._watch,),
                name=f"shmq guardian {self._namespace.name}",
                daemon=True,
            )
            self._thread.start()
        except BaseException as error:
            self._thread = self._watch = None
            self._namespace.roles.retire_guardian()
            if isinstance(error, (ShmqError, OSError, RuntimeError)):  # no watch, or no thread
                return False
            raise
        return True

    def end(self) -> bool:
        """End the thread; whether there was one."""
        with self._lock:
            thread, watch = self._thread, self._watch
            self._thread = self._watch = None
            if thread is None or watch is None:
                return False
            self._namespace.roles.retire_guardian()
        watch.wake()
        thread.join(_END_WAIT)
        return True

    def restart(self) -> None:
        """Go on after `end`."""
        with self._lock:
            if self._thread is None:
                self._begin()

    # ---- the thread ----

    def _run(self, watch: _core.FileWatch) -> None:
        _core.set_patience(_LOCK_WAIT)
        looks = 0
        while self._is_needed(watch):
            if watch.wait(_PAUSE if looks else self._needed_until - time.monotonic()):
                looks = _TRIES
            if looks:
                looks = 0 if self._has_returned_all() else looks - 1
                time.sleep(_PAUSE)

    def _is_needed(self, watch: _core.FileWatch) -> bool:
        with self._lock:
            if self._watch is not watch:
                return False
            if time.monotonic() < self._needed_until:
                return True
            self._thread = self._watch = None
            self._namespace.roles.retire_guardian()
            return False

    def _has_returned_all(self) -> bool:
        try:
            return self._return_all(self._namespace)
        except (ShmqError, OSError) as error:  # no descriptor is left, for example
            log.warning("the guardian of this process tries again: %s", error)
            return False
        except Exception:
            log.exception("the guardian of this process goes on after an error")
            return True


def _end_all() -> None:
    for guardian in list(_guardians.values()):
        guardian.end()


def _before_fork() -> None:
    """End the threads: Python warns of a fork in a process that has some."""
    _ended[:] = [each for each in list(_guardians.values()) if each.end()]


def _restart_in_parent() -> None:
    while _ended:
        guardian = _ended.pop()
        if active_count() > 1:
            guardian.restart()


def _reset_in_child() -> None:
    _ended.clear()
    _guardians.clear()


_ended: list[_Guardian] = []

atexit.register(_end_all)
before_fork(_before_fork)
os.register_at_fork(after_in_parent=_restart_in_parent, after_in_child=_reset_in_child)
