"""multiprocessing's contexts, with queues in shared memory.

Otherwise a context is multiprocessing's own. Both share one start method: calling
``set_start_method`` here sets it there, too. Pools and executors of the standard library
use the pipe inside a SimpleQueue, so they keep multiprocessing's queues.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable
from multiprocessing import context, pool
from typing import Any, Final

from shmq.mp import queues
from shmq.native._core import reserve_standard

#: A module of the standard library that takes the pipe out of its context's SimpleQueue.
_PIPE_TAKER: Final = "concurrent.futures.process"


class _Queues(context.BaseContext):
    """The queue factories of a context."""

    def Queue(self, maxsize: int = 0, *, zero_copy: bool = False) -> Any:  # noqa: N802
        return queues.Queue(maxsize, ctx=self.get_context(), zero_copy=zero_copy)

    def JoinableQueue(self, maxsize: int = 0, *, zero_copy: bool = False) -> Any:  # noqa: N802
        return queues.JoinableQueue(maxsize, ctx=self.get_context(), zero_copy=zero_copy)

    def SimpleQueue(self, *, zero_copy: bool = False) -> Any:  # noqa: N802
        if sys._getframe(1).f_globals.get("__name__") == _PIPE_TAKER:
            return super().SimpleQueue()
        return queues.SimpleQueue(ctx=self.get_context(), zero_copy=zero_copy)

    def Pool(  # noqa: N802
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
    ) -> pool.Pool:
        """A pool of processes of this context, with multiprocessing's own queues."""
        plain = multiprocessing.get_context(self.get_start_method())
        reserve_standard()
        return plain.Pool(processes, initializer, initargs, maxtasksperchild)

    def get_context(self, method: str | None = None) -> Any:
        """This context, or the one of another start method. Raises ValueError."""
        return self if method is None else get_context(method)


class ForkContext(_Queues, context.ForkContext):
    """Processes are forked."""


class SpawnContext(_Queues, context.SpawnContext):
    """Processes start as new interpreters."""


class ForkServerContext(_Queues, context.ForkServerContext):
    """Processes are forked from a server."""


_contexts: Final[dict[str, Any]] = {
    "fork": ForkContext(),
    "spawn": SpawnContext(),
    "forkserver": ForkServerContext(),
}


def get_context(method: str | None = None) -> Any:
    """The context of a start method; None: the start method in use. Raises ValueError."""
    return _contexts[multiprocessing.get_context(method).get_start_method()]
