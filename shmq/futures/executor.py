"""The executor."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from shmq.api.options import check_whole
from shmq.futures.pool import Pool
from shmq.futures.progress import show_progress
from shmq.native._core import check_seconds

T = TypeVar("T")


class ProcessPoolExecutor(Executor):
    """A drop-in replacement of ``concurrent.futures.ProcessPoolExecutor``.

    A worker that dies affects its own call alone: the call is repeated up to ``retries`` times, and
    fails with :class:`~shmq.WorkerDied` then. A call that takes longer than ``timeout`` seconds is
    ended with its worker, and fails with TimeoutError. ``mp_context`` is that of "spawn" by
    default. ``arena_bytes`` bounds the waiting arguments, and the results; it is a quarter of
    /dev/shm by default. The queues are in ``namespace``, by default the one of ``shmq.mp``.

    All other parameters, and the errors, are those of concurrent.futures.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
        retries: int = 0,
        timeout: float | None = None,
        namespace: str | None = None,
        arena_bytes: int | None = None,
    ) -> None:
        if max_workers is None:
            max_workers = len(os.sched_getaffinity(0))
        if max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        context = mp_context or multiprocessing.get_context("spawn")
        _check_limit(max_tasks_per_child, context)
        check_whole("retries", retries, 0, 1 << 31)
        if timeout is not None:
            check_seconds("timeout", timeout, 0.001)
        startup = (initializer, initargs, max_tasks_per_child)
        self._pool = Pool((context, max_workers, timeout, startup), retries, namespace, arena_bytes)
        weakref.finalize(self, self._pool.close).atexit = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Put a call into the queue, waiting for room if it is full; returns its future.

        Cancelling the future removes the call, unless a worker has taken it. Raises RuntimeError
        after a shutdown, and ``BrokenProcessPool`` if no worker could be started.
        """
        return self._pool.submit(fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        progress: bool = False,
        **options: Any,
    ) -> Iterator[T]:
        """The results of calls with the items of the iterables, in order.

        ``chunksize`` calls are executed as one. ``progress`` shows a bar on stderr, if that is a
        terminal. The other ``options`` are those of ``concurrent.futures.Executor.map``, such as
        ``buffersize`` from Python 3.14 on.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        rows: Iterable[tuple[Any, ...]] = zip(*iterables, strict=False)
        total = None
        if progress:
            rows = list(rows)
            total = len(rows)
        chunks = super().map(
            functools.partial(_call_all, fn), _split(rows, chunksize), timeout=timeout, **options
        )
        results = _flatten(chunks)
        return results if total is None else show_progress(results, total)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; with ``cancel_futures``, cancel those that no worker has taken.

        With ``wait`` it returns when all calls are done and the workers have ended.
        """
        self._pool.close(cancel=cancel_futures)
        if wait:
            self._pool.join()


def _check_limit(limit: int | None, context: Any) -> None:
    if limit is None:
        return
    if not isinstance(limit, int):
        raise TypeError("max_tasks_per_child must be an integer")
    if limit <= 0:
        raise ValueError("max_tasks_per_child must be >= 1")
    if context.get_start_method(allow_none=False) == "fork":
        raise ValueError(
            'max_tasks_per_child is incompatible with the "fork" multiprocessing start method: '
            'pass mp_context=multiprocessing.get_context("spawn")'
        )


def _split(rows: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, size)):
        yield chunk


def _call_all(function: Callable[..., T], rows: list[tuple[Any, ...]]) -> list[T]:
    """In a worker: the results of a chunk."""
    return [function(*row) for row in rows]


def _flatten(chunks: Iterator[list[T]]) -> Iterator[T]:
    """All results, each forgotten when it has been returned."""
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()
