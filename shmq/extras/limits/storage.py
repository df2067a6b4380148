"""The storages of limits: counters of windows in a table, which all processes share.

Of a fixed window there is its end, under ``window:KEY``, and its counter, whose key has the end, so
that it is that of no other window: each is written with its ttl. Of a sliding window there is the
counter of each period. So a process that is killed leaves no counter that stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from limits.aio.storage import SlidingWindowCounterSupport as AsyncSlidingWindowCounterSupport
from limits.aio.storage import Storage as AsyncStorage
from limits.storage import SlidingWindowCounterSupport, Storage
from limits.storage.base import TimestampedSlidingWindow

from shmq.api.table import MAX_KEYS, TableDurability
from shmq.client.handles.table import check_table
from shmq.client.shared.blocking_calls import run_blocking
from shmq.client.shared.urls import split_url
from shmq.errors import ShmqError
from shmq.extras.frameworks.cache_table import DEFAULT_BYTES, Location, bound_ttl
from shmq.extras.frameworks.task_queues import Connection
from shmq.extras.frameworks.task_table import TaskTable, shorten_key
from shmq.native import _clock as time

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

#: The table if the URL names none.
_TABLE: Final = "limits"
_COUNT: Final = "count:"


def _end_key(key: str) -> str:
    return shorten_key(f"window:{key}")


def _count_key(key: str, end: object = "") -> str:
    return shorten_key(f"{_COUNT}{key}{end}")


class ShmqStorage(Storage, SlidingWindowCounterSupport, TimestampedSlidingWindow):
    """Counts in the table of ``shmq://``, ``shmq://NAMESPACE/TABLE`` or ``shmq://HOST:PORT/TABLE``.

    ``token`` and ``tls`` are as for :func:`shmq.connect`, ``durability`` and ``max_bytes`` as for
    ``Broker.ensure_table``. A full table raises :class:`~shmq.NoSpace`: no counter is forgotten.
    """

    STORAGE_SCHEME = ["shmq", "shmqs"]  # noqa: RUF012 - as declared by limits

    def __init__(
        self,
        uri: str = "shmq://",
        wrap_exceptions: bool = False,
        *,
        token: str | None = None,
        tls: Tls = None,
        durability: TableDurability = "memory",
        max_bytes: int | None = DEFAULT_BYTES,
    ) -> None:
        super().__init__(uri, wrap_exceptions)
        place = _parse(uri)
        check_table(durability, max_bytes)
        connection = Connection(place.target, token, tls)
        self._table = TaskTable(connection, place.table, durability, max_bytes)

    @property
    def base_exceptions(self) -> type[Exception]:
        """What ``wrap_exceptions`` wraps."""
        return ShmqError

    # ---- fixed windows ----

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add to the counter of the window, which ends ``expiry`` seconds after its first hit."""
        now = time.time()
        end = self._end(key)
        while end is None:
            self._table.run(lambda table: table.add(_end_key(key), now + expiry, bound_ttl(expiry)))
            end = self._end(key)
        ttl, name = bound_ttl(end - now), _count_key(key, f"@{end}")
        found = self._table.run(lambda table: table.increment(name, amount, ttl=ttl))
        assert found is not None  # it has no bounds
        return found

    def get(self, key: str) -> int:
        """The counter of the window; 0 if there is none."""
        end = self._end(key)
        return 0 if end is None else self._count(_count_key(key, f"@{end}"))

    def get_expiry(self, key: str) -> float:
        """When the window ends, in seconds since 1970; now if there is none."""
        end = self._end(key)
        return time.time() if end is None else end

    def clear(self, key: str) -> None:
        """End the window."""
        end = self._end(key)
        self._table.run(lambda table: table.delete(_end_key(key), _count_key(key, f"@{end}")))

    def _end(self, key: str) -> float | None:
        found: float | None = self._table.run(lambda table: table.get(_end_key(key)))
        return found

    def _count(self, name: str) -> int:
        return int(self._table.run(lambda table: table.get(name, 0)))

    # ---- sliding windows ----

    def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        """Add to the counter of the period, unless the weighted sum would exceed the limit."""
        now = time.time()
        previous, current = self.sliding_window_keys(key, expiry, now)
        weight = self._count(_count_key(previous)) * _left(expiry, now) / expiry
        most = math.ceil(limit + 1 - weight) - 1  # the sum, rounded down, is the limit at most
        ttl = bound_ttl(2 * expiry)
        name = _count_key(current)
        found = self._table.run(lambda table: table.increment(name, amount, ttl=ttl, most=most))
        return found is not None

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """The counters of the period before and of this one, each with its time to live."""
        now = time.time()
        before, current = (
            self._count(_count_key(name)) for name in self.sliding_window_keys(key, expiry, now)
        )
        left = _left(expiry, now)
        return before, left if before else 0.0, current, left + expiry

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Delete both counters."""
        names = map(_count_key, self.sliding_window_keys(key, expiry, time.time()))
        self._table.run(lambda table: table.delete(*names))

    # ---- the storage ----

    def check(self) -> bool:
        """Whether the table can be used."""
        try:
            self._table.run(lambda table: table.get(_COUNT))
        except ShmqError:
            return False
        return True

    def reset(self) -> int:
        """Delete all counters of the table; return how many."""
        counters = sum(1 for _ in self._counters())
        self._table.run(lambda table: table.clear())
        return counters

    def _counters(self) -> Iterator[str]:
        keys = [""]
        while keys:
            after = keys[-1]
            keys = self._table.run(lambda table, after=after: table.keys(_COUNT, MAX_KEYS, after))  # type: ignore[misc]
            yield from keys


def _parse(uri: str) -> Location:
    """The table of the URL. Raises InvalidOption."""
    parts = split_url(uri, "uri")
    if parts.path in {"", "/"} and not parts.query:
        uri = f"{parts.scheme}://{parts.netloc}/{_TABLE}"
    return Location.parse(uri, "uri")


def _left(expiry: int, now: float) -> float:
    """The seconds until the next period begins."""
    return (1 - now / expiry % 1) * expiry


class AsyncShmqStorage(AsyncStorage, AsyncSlidingWindowCounterSupport, TimestampedSlidingWindow):
    """`ShmqStorage` for asyncio: each call is made in a thread, and the loop is not blocked."""

    STORAGE_SCHEME = ["async+shmq", "async+shmqs"]  # noqa: RUF012 - as above

    def __init__(
        self, uri: str = "async+shmq://", wrap_exceptions: bool = False, **options: Any
    ) -> None:
        super().__init__(uri, wrap_exceptions)
        self._storage = ShmqStorage(uri.removeprefix("async+"), **options)

    @property
    def base_exceptions(self) -> type[Exception]:
        """What ``wrap_exceptions`` wraps."""
        return ShmqError

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        return await run_blocking(self._storage.incr, key, expiry, amount)

    async def get(self, key: str) -> int:
        return await run_blocking(self._storage.get, key)

    async def get_expiry(self, key: str) -> float:
        return await run_blocking(self._storage.get_expiry, key)

    async def clear(self, key: str) -> None:
        await run_blocking(self._storage.clear, key)

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        acquire = self._storage.acquire_sliding_window_entry
        return await run_blocking(acquire, key, limit, expiry, amount)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        return await run_blocking(self._storage.get_sliding_window, key, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        await run_blocking(self._storage.clear_sliding_window, key, expiry)

    async def check(self) -> bool:
        return await run_blocking(self._storage.check)

    async def reset(self) -> int:
        return await run_blocking(self._storage.reset)
