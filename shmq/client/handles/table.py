"""Handles of tables: what a call gives is checked and encoded the same way on every transport."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shmq import api
from shmq.api.options import check_one_of, check_whole
from shmq.api.table import MIN_BYTES, TableDurability
from shmq.client.shared.blocking_calls import run_blocking
from shmq.client.shared.table_waits import FIRST_PAUSE, TableWaits
from shmq.model.table.entry import (
    Bounds,
    Stored,
    check_by,
    check_key,
    check_keys,
    check_limit,
    check_prefix,
    check_sum_with,
    check_ttl,
    decoded,
    encoded,
    encoded_all,
)
from shmq.native import _clock as time
from shmq.native._core import check_timeout

if TYPE_CHECKING:
    from shmq.model.codec.codecs import Default


def check_table(durability: str, max_bytes: int | None) -> None:
    """Raise InvalidOption or TypeError unless a table may have these options."""
    check_one_of("durability", durability, ("memory", "disk"))
    if max_bytes is not None:
        check_whole("max_bytes", max_bytes, MIN_BYTES)


class TableHandle(api.Table):
    """A handle of a table, for which a transport finds and stores encoded values."""

    #: The longest pause of a wait, in seconds.
    _longest_pause: float
    #: Of `connect`, which sets it.
    default: Default | None = None

    def __init__(self, name: str, durability: TableDurability, max_bytes: int | None) -> None:
        self._name = name
        self._durability: TableDurability = durability
        self._max_bytes = max_bytes
        self._waits: TableWaits | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def durability(self) -> TableDurability:
        return self._durability

    @property
    def max_bytes(self) -> int | None:
        return self._max_bytes

    # ---- what a transport does ----

    @abc.abstractmethod
    def _poll(self, key: str) -> Stored | None:
        """The key's value."""

    @abc.abstractmethod
    def _find(self, keys: list[str]) -> dict[str, Stored]:
        """Those of the keys that are there."""

    @abc.abstractmethod
    def _store(self, entries: dict[str, Stored], ttl: float | None) -> None: ...

    @abc.abstractmethod
    def _add(self, key: str, stored: Stored, ttl: float | None) -> bool: ...

    @abc.abstractmethod
    def _delete(self, keys: list[str]) -> int: ...

    @abc.abstractmethod
    def _expire(self, key: str, ttl: float | None) -> bool: ...

    @abc.abstractmethod
    def _increment(self, key: str, by: int, ttl: float | None, bounds: Bounds) -> int | None: ...

    @abc.abstractmethod
    def _keys(self, prefix: str, limit: int, after: str) -> list[str]: ...

    def _changed(self) -> object:
        """What differs after a write, if the transport knows that sooner than by a look."""
        return object()

    # ---- reading ----

    def get(self, key: str, default: Any = None) -> Any:
        stored = self._poll(check_key(key))
        return default if stored is None else decoded(stored)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        found = self._find(check_keys(keys))
        return {key: decoded(stored) for key, stored in found.items()}

    def keys(self, prefix: str = "", limit: int = 1000, after: str = "") -> list[str]:
        checked = check_prefix(prefix, "prefix"), check_limit(limit), check_prefix(after, "after")
        return self._keys(*checked)

    def wait(self, key: str, timeout: float | None = None) -> Any | None:
        check_key(key)
        check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        pause, seen = FIRST_PAUSE, None
        while True:
            changed = self._changed()  # before the look: what is written since is seen by the next
            if changed != seen:
                seen = changed
                stored = self._poll(key)
                if stored is not None:
                    return decoded(stored)
            left = pause if until is None else until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, self._longest_pause)

    async def await_key(self, key: str, timeout: float | None = None) -> Any | None:
        check_key(key)
        check_timeout(timeout)
        stored = await run_blocking(self._poll, key)
        if stored is None and timeout != 0:
            waits = self._waits
            if waits is None or not waits.is_ours:
                waits = self._waits = TableWaits(self._find, self._changed, self._longest_pause)
            stored = await waits.wait(key, timeout)
        return None if stored is None else decoded(stored)

    # ---- writing ----

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        self._store({check_key(key): encoded(value, self.default)}, check_ttl(ttl))

    def set_many(self, mapping: Mapping[str, Any], ttl: float | None = None) -> None:
        self._store(encoded_all(mapping, self.default), check_ttl(ttl))

    def add(self, key: str, value: Any, ttl: float | None = None) -> bool:
        return self._add(check_key(key), encoded(value, self.default), check_ttl(ttl))

    def delete(self, *keys: str) -> int:
        return self._delete(check_keys(keys))

    def expire(self, key: str, ttl: float | None) -> bool:
        return self._expire(check_key(key), check_ttl(ttl))

    def increment(
        self,
        key: str,
        by: int = 1,
        *,
        ttl: float | None = None,
        least: int | None = None,
        most: int | None = None,
        sum_with: Iterable[str] = (),
    ) -> int | None:
        bounds = Bounds(
            None if least is None else check_by("least", least),
            None if most is None else check_by("most", most),
            check_sum_with(check_key(key), sum_with),
        )
        return self._increment(key, check_by("by", by), check_ttl(ttl), bounds)
