"""Handles of tables: what a call gives is checked and encoded the same way on every transport."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from shmq import api
from shmq.api.keywords import IncrementKeywords
from shmq.api.options import check_flag, check_one_of, check_whole
from shmq.api.table import MIN_BYTES, TableDurability
from shmq.client.ports.steps import Steps, arun, run
from shmq.client.shared.table_waits import FIRST_PAUSE, TableWaits
from shmq.model.table.entry import (
    USUAL_TERMS,
    Stored,
    Terms,
    check_by,
    check_key,
    check_keys,
    check_limit,
    check_most,
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


def check_increment(
    key: str,
    by: int,
    ttl: float | None = None,
    least: int | None = None,
    most: int | None = None,
    sum_with: Iterable[str] = (),
    create: bool = True,
    renew: bool = True,
) -> tuple[str, int, float | None, Terms]:
    """The arguments of an increment, as a transport takes them. Raises InvalidOption, TypeError."""
    check_key(key)
    if least is None and most is None and sum_with == () and create is True and renew is True:
        terms = USUAL_TERMS
    else:
        check_flag("create", create)
        check_flag("renew", renew)
        terms = Terms(
            None if least is None else check_by("least", least),
            None if most is None else check_by("most", most),
            check_sum_with(key, sum_with),
            create,
            renew,
        )
    return key, check_by("by", by), check_ttl(ttl), terms


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
        #: The waits of the tasks of each event loop.
        self._waits: dict[asyncio.AbstractEventLoop, TableWaits] = {}

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
    def _poll(self, key: str) -> Steps[Stored | None]:
        """The key's value."""

    @abc.abstractmethod
    def _find(self, keys: list[str]) -> Steps[dict[str, Stored]]:
        """Those of the keys that are there."""

    @abc.abstractmethod
    def _store(self, entries: dict[str, Stored], ttl: float | None) -> Steps[None]: ...

    @abc.abstractmethod
    def _add(self, key: str, stored: Stored, ttl: float | None) -> Steps[bool]: ...

    @abc.abstractmethod
    def _delete(self, keys: list[str]) -> Steps[int]: ...

    @abc.abstractmethod
    def _clear(self, most: int | None) -> Steps[int]: ...

    @abc.abstractmethod
    def _expire(self, key: str, ttl: float | None) -> Steps[bool]: ...

    @abc.abstractmethod
    def _increment(
        self, key: str, by: int, ttl: float | None, terms: Terms
    ) -> Steps[int | None]: ...

    @abc.abstractmethod
    def _keys(self, prefix: str, limit: int, after: str) -> Steps[list[str]]: ...

    @abc.abstractmethod
    def _count(self) -> Steps[int]: ...

    def _look(self, keys: list[str], state: object) -> Steps[tuple[dict[str, Stored], object]]:
        """Those of the keys that are there, and the state of the table before.

        A transport that learns the state sooner finds nothing if it is that of the last lookup.
        """
        return (yield from self._find(keys)), state

    # ---- procedures of the calls and their twins ----

    def _getting(self, key: str, default: Any) -> Steps[Any]:
        stored = yield from self._poll(check_key(key))
        return default if stored is None else decoded(stored)

    def _getting_many(self, keys: Iterable[str]) -> Steps[dict[str, Any]]:
        found = yield from self._find(check_keys(keys))
        return {key: decoded(stored) for key, stored in found.items()}

    def _listing(self, prefix: str, limit: int, after: str) -> Steps[list[str]]:
        checked = check_prefix(prefix, "prefix"), check_limit(limit), check_prefix(after, "after")
        return self._keys(*checked)

    def _setting(self, key: str, value: Any, ttl: float | None) -> Steps[None]:
        return self._store({check_key(key): encoded(value, self.default)}, check_ttl(ttl))

    def _setting_many(self, mapping: Mapping[str, Any], ttl: float | None) -> Steps[None]:
        return self._store(encoded_all(mapping, self.default), check_ttl(ttl))

    def _adding(self, key: str, value: Any, ttl: float | None) -> Steps[bool]:
        return self._add(check_key(key), encoded(value, self.default), check_ttl(ttl))

    def _incrementing(self, key: str, by: int, how: IncrementKeywords) -> Steps[int | None]:
        return self._increment(*check_increment(key, by, **how))

    # ---- reading ----

    def get(self, key: str, default: Any = None) -> Any:
        return run(self._getting(key, default))

    async def aget(self, key: str, default: Any = None) -> Any:
        return await arun(self._getting(key, default))

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        return run(self._getting_many(keys))

    async def aget_many(self, keys: Iterable[str]) -> dict[str, Any]:
        return await arun(self._getting_many(keys))

    def keys(self, prefix: str = "", limit: int = 1000, after: str = "") -> list[str]:
        return run(self._listing(prefix, limit, after))

    async def akeys(self, prefix: str = "", limit: int = 1000, after: str = "") -> list[str]:
        return await arun(self._listing(prefix, limit, after))

    def wait(self, key: str, timeout: float | None = None) -> Any | None:
        check_key(key)
        timeout = check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        pause, state = FIRST_PAUSE, None
        while True:
            found, state = run(self._look([key], state))
            if found:
                return decoded(found[key])
            left = pause if until is None else until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, self._longest_pause)

    async def await_(self, key: str, timeout: float | None = None) -> Any | None:
        check_key(key)
        timeout = check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        stored = await arun(self._poll(key))
        if stored is None and timeout != 0:
            left = None if until is None else max(0.0, until - time.monotonic())
            waits = self._waits.get(asyncio.get_running_loop())
            if waits is None:
                waits = TableWaits(self._waits, self._alook, self._longest_pause)
            stored = await waits.wait(key, left)
        return None if stored is None else decoded(stored)

    async def _alook(self, keys: list[str], state: object) -> tuple[dict[str, Stored], object]:
        return await arun(self._look(keys, state))

    def __len__(self) -> int:
        return run(self._count())

    async def alen(self) -> int:
        return await arun(self._count())

    # ---- writing ----

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        run(self._setting(key, value, ttl))

    async def aset(self, key: str, value: Any, ttl: float | None = None) -> None:
        await arun(self._setting(key, value, ttl))

    def set_many(self, mapping: Mapping[str, Any], ttl: float | None = None) -> None:
        run(self._setting_many(mapping, ttl))

    async def aset_many(self, mapping: Mapping[str, Any], ttl: float | None = None) -> None:
        await arun(self._setting_many(mapping, ttl))

    def add(self, key: str, value: Any, ttl: float | None = None) -> bool:
        return run(self._adding(key, value, ttl))

    async def aadd(self, key: str, value: Any, ttl: float | None = None) -> bool:
        return await arun(self._adding(key, value, ttl))

    def delete(self, *keys: str) -> int:
        return run(self._delete(check_keys(keys)))

    async def adelete(self, *keys: str) -> int:
        return await arun(self._delete(check_keys(keys)))

    def clear(self, most: int | None = None) -> int:
        return run(self._clear(check_most(most)))

    async def aclear(self, most: int | None = None) -> int:
        return await arun(self._clear(check_most(most)))

    def expire(self, key: str, ttl: float | None) -> bool:
        return run(self._expire(check_key(key), check_ttl(ttl)))

    async def aexpire(self, key: str, ttl: float | None) -> bool:
        return await arun(self._expire(check_key(key), check_ttl(ttl)))

    def increment(self, key: str, by: int = 1, **how: Unpack[IncrementKeywords]) -> int | None:
        return run(self._incrementing(key, by, how))

    async def aincrement(
        self, key: str, by: int = 1, **how: Unpack[IncrementKeywords]
    ) -> int | None:
        return await arun(self._incrementing(key, by, how))
