"""multiprocessing's contexts, whose queues are those of shared memory.

A context is multiprocessing's own in all else. The start method is one for both: what
``set_start_method`` says here holds there. What the standard library builds upon the
pipe within a SimpleQueue, pools and executors, goes on with multiprocessing's.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable
from multiprocessing import context, pool
from typing import Any, Final

from shmq.mp import queues

__all__ = ["get_context"]

#: A module of the standard library that takes the pipe out of its context's SimpleQueue.
_PIPE_TAKER: Final = "concurrent.futures.process"


class _Queues(context.BaseContext):
    """A context's factories of queues."""

    def Queue(self, maxsize: int = 0, *, zero_copy: bool = False) -> Any:  # noqa: N802
        """See :class:`shmq.mp.queues.Queue`."""
        return queues.Queue(maxsize, ctx=self.get_context(), zero_copy=zero_copy)

    def JoinableQueue(self, maxsize: int = 0, *, zero_copy: bool = False) -> Any:  # noqa: N802
        """See :class:`shmq.mp.queues.JoinableQueue`."""
        return queues.JoinableQueue(maxsize, ctx=self.get_context(), zero_copy=zero_copy)

    def SimpleQueue(self, *, zero_copy: bool = False) -> Any:  # noqa: N802
        """See :class:`shmq.mp.queues.SimpleQueue`."""
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
        """A pool of processes of this context, upon multiprocessing's own queues."""
        plain = multiprocessing.get_context(self.get_start_method())
        return plain.Pool(processes, initializer, initargs, maxtasksperchild)

    def get_context(self, method: str | None = None) -> Any:
        """This context, or that of another start method. Raises ValueError."""
        return self if method is None else get_context(method)


class ForkContext(_Queues, context.ForkContext):
    """Processes are forked."""


class SpawnContext(_Queues, context.SpawnContext):
    """Processes begin as new interpreters."""


class ForkServerContext(_Queues, context.ForkServerContext):
    """Processes are forked off a server."""


_contexts: Final[dict[str, Any]] = {
    "fork": ForkContext(),
    "spawn": SpawnContext(),
    "forkserver": ForkServerContext(),
}


def get_context(method: str | None = None) -> Any:
    """The context of a start method; None: of the one in use. Raises ValueError."""
    return _contexts[multiprocessing.get_context(method).get_start_method()]
