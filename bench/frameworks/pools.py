"""Rows of process pools: two workers, and the same calls on each pool."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor as Standard
from typing import Any, Final, Protocol

from bench.frameworks.calls import RATE, Calls, Play
from bench.row import Row, times
from bench.scratch import scratch
from bench.stage import Failed

#: The bytes of an array.
LARGE: Final = 1 << 20
_WORKERS: Final = 2


class Pool(Protocol):
    """What the pools have in common."""

    def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Make one call, and wait for its result."""

    def call_all(self, function: Callable[[Any], Any], arguments: range) -> Iterable[Any]:
        """Make many calls; their results, in order."""


class Executor:
    """A pool with the interface of concurrent.futures."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        return self._executor.submit(function, argument).result()

    def call_all(self, function: Callable[[Any], Any], arguments: range) -> Iterable[Any]:
        results: Iterable[Any] = self._executor.map(function, arguments)
        return results


class Pebble:
    """A pool of pebble."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        return self._pool.schedule(function, args=[argument]).result()

    def call_all(self, function: Callable[[Any], Any], arguments: range) -> Iterable[Any]:
        results: Iterable[Any] = self._pool.map(function, arguments).result()
        return results


@contextlib.contextmanager
def _ours() -> Iterator[Pool]:
    from shmq.futures import ProcessPoolExecutor

    with scratch() as broker, ProcessPoolExecutor(_WORKERS, namespace=broker.namespace) as pool:
        yield Executor(pool)


@contextlib.contextmanager
def _standard() -> Iterator[Pool]:
    with Standard(_WORKERS, multiprocessing.get_context("spawn")) as pool:
        yield Executor(pool)


@contextlib.contextmanager
def _loky() -> Iterator[Pool]:
    from loky import ProcessPoolExecutor

    with ProcessPoolExecutor(_WORKERS) as pool:
        yield Executor(pool)


@contextlib.contextmanager
def _pebble() -> Iterator[Pool]:
    from pebble import ProcessPool

    with ProcessPool(_WORKERS, context=multiprocessing.get_context("spawn")) as pool:
        yield Pebble(pool)


# ---- the calls, which workers import ----


def double(number: int) -> int:
    """The small call."""
    return 2 * number


def negate(array: Any) -> Any:
    """The call with an array."""
    return -array


def _map_calls(pool: Pool) -> Play:
    def play(amount: int) -> None:
        if list(pool.call_all(double, range(amount))) != list(range(0, 2 * amount, 2)):
            raise Failed("the results are not those of the calls")

    return play


def _one_calls(pool: Pool) -> Play:
    def play(amount: int) -> None:
        for number in range(amount):
            if pool.call(double, number) != 2 * number:
                raise Failed(f"the result of call {number} is another one")

    return play


def _array_calls(pool: Pool) -> Play:
    import numpy as np

    arrays = [np.arange(LARGE // 8, dtype=np.int64) + number for number in range(4)]

    def play(amount: int) -> None:
        for number in range(amount):
            array = arrays[number % len(arrays)]
            if not np.array_equal(pool.call(negate, array), -array):
                raise Failed(f"the result of call {number} is another array")

    return play


_OURS: Final = "shmq.futures"
_POOLS: Final[dict[str, tuple[Callable[[], Any], tuple[str, ...]]]] = {
    _OURS: (_ours, ()),
    "concurrent.futures": (_standard, ()),
    "loky": (_loky, ("loky",)),
    "pebble": (_pebble, ("pebble",)),
}


@contextlib.contextmanager
def _open(open_pool: Callable[[], Any], calls: Callable[[Pool], Play]) -> Iterator[Play]:
    with open_pool() as pool:
        yield calls(pool)


def _row(key: str, title: str, calls: Callable[[Pool], Play], modules: tuple[str, ...] = ()) -> Row:
    others = [label for label in _POOLS if label != _OURS]
    return Row(
        key=key,
        title=f"Process pools: {title}",
        contestants=[
            Calls(
                label,
                functools.partial(_open, pool, calls),
                (*needs, *modules),
                role="shmq" if label == _OURS else "peer",
            )
            for label, (pool, needs) in _POOLS.items()
        ],
        figures=[RATE],
        bars=[times(_OURS, others, 1.0)],
        limit="Python: pickling, threads and futures",
        visits=3,
        turn=0.25,
    )


def map_row() -> Row:
    """Small calls by map."""
    return _row("pool-map", "small calls by map, two workers", _map_calls)


def one_row() -> Row:
    """One small call at a time."""
    return _row("pool-one", "one small call at a time", _one_calls)


def array_row() -> Row:
    """Arrays of 1 MiB there and back."""
    return _row("pool-array", "NumPy arrays of 1 MiB, one call at a time", _array_calls, ("numpy",))
