"""Modules that are loaded on first use, by a package's names (PEP 562) or inside a function.

A module has a lock of its own while it is loaded. A child that is forked at that moment inherits
the lock, held by a thread that it does not have, and waits for it forever once it imports the
module. So each import inside a function is in a ``with late_imports:`` block, and a fork waits
until no other thread is inside such a block.
"""

from __future__ import annotations

import os
import sys
import threading

from shmq.errors import descriptors

TYPE_CHECKING = False  # that of typing, whose import would cost as much as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

#: How long a fork waits for one import, and an import for a fork, in seconds. Both end earlier,
#: unless the two threads wait for each other: a module that forks while it is loaded, for example.
_LONGEST_WAIT = 10.0
#: How long a fork waits at a time for a lock of `hold_at_fork`, and for other threads to load
#: modules between two tries, in seconds: the lock's owner may be about to load one.
_LOCK_WAIT = 0.05


_register_at_fork = os.register_at_fork

#: What modules of shmq do before a fork, in the order of their registration.
_before_fork: list[Callable[[], object]] = []
#: The locks that a fork holds: see `hold_at_fork`.
_holds: list[tuple[Callable[[float], bool], Callable[[], object]]] = []


class _LateImports:
    """A block that loads modules: no other thread forks the process in the meantime.

    Threads in such blocks do not exclude each other, since one may wait for a module that another
    one is loading. A lack of file descriptors is reported as of `shmq.errors.descriptors`.
    """

    def __init__(self) -> None:
        self._reset({})

    def _reset(self, depths: dict[int, int]) -> None:
        #: Held by a thread from right before its fork until right after it. A signal handler may
        #: interrupt its owner, so that it is reentrant.
        self._forking = threading.RLock()
        self._block_left = threading.Condition(self._forking)
        #: How many blocks each thread is inside of.
        self._depths = depths
        #: The handlers that were registered while a thread waits to fork, by the thread.
        self._missed: dict[int, list[Callable[[], object]]] = {}
        #: What releases the locks that the forking thread holds.
        self._held: list[Callable[[], object]] = []
        vars(os)["register_at_fork"] = _register_at_fork

    def __enter__(self) -> None:
        self._add(1)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._add(-1)
        descriptors.__exit__(kind, error, trace)

    def _add(self, blocks: int) -> None:
        lock = self._forking
        held = lock.acquire(timeout=_LONGEST_WAIT)
        try:
            thread = threading.get_ident()
            depth = self._depths.pop(thread, 0) + blocks
            if depth:
                self._depths[thread] = depth
            elif held:
                self._block_left.notify_all()
        finally:
            if held:
                lock.release()

    def before_fork(self) -> None:
        """Wait until no other thread is inside a block, and keep them out.

        Python listed the handlers to run before the fork when it began. Modules that are loaded
        since then register more, whose counterparts will release locks after the fork: those of
        shmq, and those that others register from now on, as logging does, run here.
        """
        thread = threading.get_ident()
        missed = self._missed[thread] = []
        vars(os)["register_at_fork"] = self._register
        done = 0
        while True:
            # Without the lock: a thread that the handlers wait for may be about to load a module.
            for before in reversed(_before_fork[done:]):
                before()
                done += 1
            self._forking.acquire()
            while self._depths.keys() - {thread} and self._block_left.wait(_LONGEST_WAIT):
                pass
            if done == len(_before_fork):
                if self._hold_locks():
                    break
                self._block_left.wait(_LOCK_WAIT)  # lets other threads in
            self._forking.release()
        del self._missed[thread]
        if not self._missed:
            vars(os)["register_at_fork"] = _register_at_fork
        for before in reversed(missed):
            before()

    def _hold_locks(self) -> bool:
        """Acquire all locks of `hold_at_fork`, or none; return whether they were acquired."""
        for acquire, release in _holds:
            if not acquire(_LOCK_WAIT):
                self._release_locks()
                return False
            self._held.append(release)
        return True

    def _release_locks(self) -> None:
        while self._held:
            self._held.pop()()

    def _register(self, **handlers: Callable[[], object]) -> None:
        """``os.register_at_fork`` while a thread waits to fork."""
        with self._forking:
            _register_at_fork(**handlers)
            if "before" in handlers:
                for missed in self._missed.values():
                    missed.append(handlers["before"])

    def after_in_parent(self) -> None:
        """Let other threads go on, before any handler waits for one of them."""
        self._release_locks()
        self._forking.release()

    def after_in_child(self) -> None:
        """Forget the parent's other threads."""
        thread = threading.get_ident()
        depth = self._depths.get(thread, 0)
        self._reset({thread: depth} if depth else {})


#: See `_LateImports`.
late_imports = _LateImports()

_register_at_fork(
    before=late_imports.before_fork,
    after_in_parent=late_imports.after_in_parent,
    after_in_child=late_imports.after_in_child,
)


def before_fork(handler: Callable[[], object]) -> None:
    """Call the handler before each fork, also before one that has started.

    With ``os.register_at_fork``, the counterparts alone would run if a fork has started.
    """
    _before_fork.append(handler)


def hold_at_fork(acquire: Callable[[float], bool], release: Callable[[], object]) -> None:
    """Hold a lock during each fork, so that it meets no thread in what the lock guards.

    ``acquire`` waits for at most as many seconds as its argument says, and returns whether the lock
    was acquired. It is called again until it was, and last of all: an owner of the lock may wait
    for another thread that a handler of `before_fork` waits for. The child has to renew the lock.
    """
    _holds.append((acquire, release))


def on_demand(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package that exports ``places``.

    ``places`` maps each public name to the module that it is loaded from, once.
    """
    own = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with late_imports:
            from importlib import import_module  # noqa: PLC0415 - it loads warnings

            found = own[name] = getattr(import_module(places[name]), name)
        return found

    def names() -> list[str]:
        return sorted(places)

    return find, names
