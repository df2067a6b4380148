"""Dramatiq's rate limiters and barriers over a table of shmq."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dramatiq.rate_limits import RateLimiterBackend

from shmq.extras.frameworks.task_queues import Connection
from shmq.extras.frameworks.task_table import TaskTable

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


class ShmqRateLimiterBackend(RateLimiterBackend):
    """Counts in the table ``table``, atomically over all processes and hosts that use it.

    ``url``, ``token`` and ``tls`` are as for `ShmqBroker`. All times are in ms, as dramatiq's.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tls: Tls = None,
        table: str = "dramatiq-limits",
    ) -> None:
        self._table = TaskTable(Connection(url, token, tls), table, "memory")

    def add(self, key: str, value: int, ttl: int) -> bool:
        """Set the key if it is absent; whether it was."""
        return bool(self._table.run(lambda table: table.add(key, value, ttl=ttl / 1000)))

    def incr(self, key: str, amount: int, maximum: int, ttl: int) -> bool:
        """Add to the key unless it would exceed the maximum; whether it did not."""
        return self._change_value(key, amount, ttl, most=maximum)

    def decr(self, key: str, amount: int, minimum: int, ttl: int) -> bool:
        """Subtract from the key unless it would fall below the minimum; whether it did not."""
        return self._change_value(key, -amount, ttl, least=minimum)

    def incr_and_sum(
        self, key: str, keys: Callable[[], list[str]], amount: int, maximum: int, ttl: int
    ) -> bool:
        """Add to the key unless the sum of ``keys()`` would exceed the maximum."""
        others = [each for each in keys() if each != key]
        return self._change_value(key, amount, ttl, most=maximum, sum_with=others)

    def _change_value(self, key: str, amount: int, ttl: int, **limits: Any) -> bool:
        seconds = ttl / 1000
        found = self._table.run(lambda table: table.increment(key, amount, ttl=seconds, **limits))
        return found is not None

    def wait(self, key: str, timeout: int | None) -> bool:
        """Wait until the key is notified; whether it was within the timeout."""
        seconds = None if timeout is None else timeout / 1000
        return self._table.run(lambda table: table.wait(key, seconds)) is not None

    def wait_notify(self, key: str, ttl: int) -> None:
        """Wake all that wait for the key, and those that will within ``ttl``."""
        self._table.run(lambda table: table.set(key, b"x", ttl=ttl / 1000))

    def close(self) -> None:
        """Close the connection."""
        self._table.close()
