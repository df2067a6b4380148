"""The cache of cachelib: values in a table, which all processes of the application share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cachelib import BaseCache

from shmq.api.table import TableDurability
from shmq.extras.frameworks.cache_table import DEFAULT_BYTES, CacheTable, Serializer

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


class ShmqCache(BaseCache):
    """Caches values in the table ``shmq://NAMESPACE/TABLE``, ``shmq:///TABLE`` or that of a server.

    ``default_timeout``, ``key_prefix`` and ``ignore_delete_many_errors`` are as for cachelib's own
    caches, and the rest as for `CacheTable`: a server's table requires a serializer other than
    pickle. A full table loses what expires first. Raises :class:`~shmq.ShmqError` where cachelib's
    own caches return False.
    """

    def __init__(
        self,
        location: str = "shmq:///cache",
        default_timeout: int | dt.timedelta = 300,
        key_prefix: str | Callable[[], str] | None = None,
        ignore_delete_many_errors: bool = True,
        *,
        serializer: str | Serializer = "pickle",
        token: str | None = None,
        tls: Tls = None,
        durability: TableDurability = "memory",
        max_bytes: int | None = DEFAULT_BYTES,
    ) -> None:
        super().__init__(default_timeout, ignore_delete_many_errors)
        self.key_prefix = key_prefix
        self._table = CacheTable(
            location,
            serializer=serializer,
            token=token,
            tls=tls,
            durability=durability,
            max_bytes=max_bytes,
        )

    @property
    def serializer(self) -> Serializer:
        """What encodes the values; may be set."""
        return self._table.serializer

    @serializer.setter
    def serializer(self, serializer: Serializer) -> None:
        self._table.serializer = serializer

    def _prefix(self) -> str:
        prefix = self.key_prefix
        return (prefix() if callable(prefix) else prefix) or ""

    def _ttl(self, timeout: int | dt.timedelta | None) -> float | None:
        """Seconds; None for ever, which is 0 of cachelib and -1 of its cache in Redis."""
        seconds = self._normalize_timeout(timeout)
        return None if seconds in {0, -1} else seconds

    def get(self, key: str) -> Any:
        return self._table.get(f"{self._prefix()}{key}")

    def get_many(self, *keys: str) -> list[Any]:
        names = [f"{self._prefix()}{key}" for key in keys]
        found = self._table.get_many(names)
        return [found.get(name) for name in names]

    def has(self, key: str) -> bool:
        return self._table.has(f"{self._prefix()}{key}")

    def set(self, key: str, value: Any, timeout: int | dt.timedelta | None = None) -> bool:
        self._table.set(f"{self._prefix()}{key}", value, self._ttl(timeout))
        return True

    def set_many(
        self, mapping: dict[str, Any], timeout: int | dt.timedelta | None = None
    ) -> list[Any]:
        prefix = self._prefix()
        values = {f"{prefix}{key}": value for key, value in mapping.items()}
        self._table.set_many(values, self._ttl(timeout))
        return list(mapping)

    def add(self, key: str, value: Any, timeout: int | dt.timedelta | None = None) -> bool:
        return self._table.add(f"{self._prefix()}{key}", value, self._ttl(timeout))

    def delete(self, key: str) -> bool:
        return self._table.delete(f"{self._prefix()}{key}") > 0

    def delete_many(self, *keys: str) -> list[Any]:
        prefix = self._prefix()
        self._table.delete(*(f"{prefix}{key}" for key in keys))
        return list(keys)

    def clear(self) -> bool:
        self._table.clear(self._prefix())
        return True

    def inc(self, key: str, delta: int = 1) -> int | None:
        name = f"{self._prefix()}{key}"
        return self._table.increment(name, delta, self._ttl(None), create=True)

    def dec(self, key: str, delta: int = 1) -> int | None:
        return self.inc(key, -delta)
