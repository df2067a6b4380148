"""The table in which a web framework caches values: any objects, by keys of any text."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

import msgpack

import shmq
from shmq.api.names import TCP_SCHEMES
from shmq.api.table import MAX_TTL, MAX_VALUE, TableDurability
from shmq.client.handles.table import check_table
from shmq.client.shared.urls import split_url
from shmq.errors import InvalidOption, MessageTooLarge, NoSpace
from shmq.extras.frameworks.target import find_target, is_remote
from shmq.extras.frameworks.task_queues import Connection
from shmq.extras.frameworks.task_table import TaskTable, shorten_key

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

_T = TypeVar("_T")

#: The most bytes of a cache's table by default.
DEFAULT_BYTES: Final = 256 << 20
#: The bytes of values that one call stores: fewer than a server's ``max_frame``.
_PORTION: Final = 4 << 20
#: How many entries make room in a full table at first; if that is not enough, twice as many.
_EVICTED: Final = 16
#: The least ttl of a table, in seconds.
_SHORTEST: Final = 0.001
_MISSING: Final = object()


class Serializer(Protocol):
    """Encodes values as bytes."""

    def dumps(self, value: Any, /) -> bytes | None:
        """The value as bytes; None, or an error: it has none."""

    def loads(self, encoded: bytes, /) -> Any:
        """The value of these bytes."""


class _Pickle:
    def dumps(self, value: Any) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads(self, encoded: bytes) -> Any:
        return pickle.loads(encoded)  # of a table that is closed to other users


class _Json:
    def dumps(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def loads(self, encoded: bytes) -> Any:
        return json.loads(encoded)


class _Msgpack:
    def dumps(self, value: Any) -> bytes:
        packed: bytes = msgpack.packb(value)
        return packed

    def loads(self, encoded: bytes) -> Any:
        return msgpack.unpackb(encoded, strict_map_key=False)


_SERIALIZERS: Final[dict[str, Serializer]] = {
    "pickle": _Pickle(),
    "json": _Json(),
    "msgpack": _Msgpack(),
}


class Location(NamedTuple):
    """A table, and the target of :func:`shmq.connect` where it is."""

    target: str | None
    table: str

    @classmethod
    def parse(cls, url: str, what: str = "LOCATION") -> Location:
        """``shmq://NAMESPACE/TABLE``, ``shmq:///TABLE``, or ``shmq://HOST:PORT/TABLE`` of a server.

        ``shmqs://HOST:PORT/TABLE`` is a server with TLS, ``shmq://GROUP/NAME/TABLE`` a namespace
        of a group of users. Raises InvalidOption, and TypeError.
        """
        if not isinstance(url, str):
            raise TypeError(f"{what} must be a str, not {type(url).__name__}")
        parts = split_url(url, what)
        table = unquote(parts.path.removeprefix("/"))
        if parts.scheme not in TCP_SCHEMES or not table or parts.query or parts.fragment:
            raise InvalidOption(
                f"{what}={url!r} must be shmq://NAMESPACE/TABLE, or shmq://HOST:PORT/TABLE of a "
                f"server"
            )
        target = find_target(parts)
        name, mark, last = table.rpartition("/")
        if mark and target is not None and not is_remote(target):
            return cls(f"{target}/{name}", last)
        return cls(target, table)

    @property
    def is_remote(self) -> bool:
        """Whether a server has the table."""
        return is_remote(self.target)


class CacheTable:
    """A table of any values, which makes room for new ones: a full one loses what expires first.

    ``location`` is that of `Location.parse`, ``serializer`` the name of one, or an object with
    ``dumps`` and ``loads``; ``token`` and ``tls`` are those of :func:`shmq.connect`, ``durability``
    and ``max_bytes`` those of ``Broker.ensure_table``. The table is created at its first use, and
    again if it was deleted. A ttl is in seconds; None, and over ten years: for ever; 0 or less: the
    value has expired already. Integers of 64 bits are stored unchanged, so that they can be
    incremented. Raises InvalidOption, InvalidName and TypeError.
    """

    def __init__(
        self,
        location: str,
        *,
        serializer: str | Serializer = "pickle",
        token: str | None = None,
        tls: Tls = None,
        durability: TableDurability = "memory",
        max_bytes: int | None = DEFAULT_BYTES,
    ) -> None:
        place = Location.parse(location)
        check_table(durability, max_bytes)
        self.serializer = _find_serializer(serializer, place)
        connection = Connection(place.target, token, tls)
        self._table = TaskTable(connection, place.table, durability, max_bytes)

    # ---- reading ----

    def get(self, key: str, default: Any = None) -> Any:
        """The value of the key, or ``default``. Raises what the serializer raises."""
        stored = self._find(key)
        return default if stored is _MISSING else self._decode(stored)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of those keys that are there."""
        shortened = {shorten_key(key): key for key in keys}
        found = self._table.run(lambda table: table.get_many(shortened))
        return {shortened[key]: self._decode(stored) for key, stored in found.items()}

    def has(self, key: str) -> bool:
        """Whether the key is there; its value is not decoded."""
        return self._find(key) is not _MISSING

    def _find(self, key: str) -> Any:
        """What is stored with the key, or `_MISSING`."""
        return self._table.run(lambda table: table.get(shorten_key(key), _MISSING))

    # ---- writing ----

    def set(self, key: str, value: Any, ttl: float | None) -> None:
        """Set the value. Raises MessageTooLarge, and what the serializer raises."""
        name, encoded = shorten_key(key), self._encode(value)
        if has_expired(ttl):
            self.delete(name)
        else:
            self._write(lambda table: table.set(name, encoded, bound_ttl(ttl)))

    def set_many(self, mapping: Mapping[str, Any], ttl: float | None) -> None:
        """Set each of them; all are encoded first, and then set in portions of 4 MiB."""
        encoded = {shorten_key(key): self._encode(value) for key, value in mapping.items()}
        if has_expired(ttl):
            self.delete(*encoded)
            return
        portion: dict[str, bytes | int] = {}
        size = 0
        most = min(_PORTION, self._most_bytes)
        for key, stored in encoded.items():
            bytes_ = _size_of(stored)
            if portion and size + bytes_ > most:
                self._store(portion, ttl)
                portion, size = {}, 0
            portion[key] = stored
            size += bytes_
        if portion:
            self._store(portion, ttl)

    def _store(self, portion: dict[str, bytes | int], ttl: float | None) -> None:
        self._write(lambda table: table.set_many(portion, bound_ttl(ttl)))

    def add(self, key: str, value: Any, ttl: float | None) -> bool:
        """Set the value if the key is not there; return whether it was not."""
        encoded = self._encode(value)
        if has_expired(ttl):
            return not self.has(key)
        return self._write(lambda table: table.add(shorten_key(key), encoded, bound_ttl(ttl)))

    def expire(self, key: str, ttl: float | None) -> bool:
        """Give the key a new ttl; return whether it is there."""
        if has_expired(ttl):
            return self.delete(key) > 0
        return self._write(lambda table: table.expire(shorten_key(key), bound_ttl(ttl)))

    def increment(self, key: str, by: int, ttl: float | None, *, create: bool) -> int | None:
        """Add to the integer of the key; with ``create`` a new one is ``by``, with this ttl.

        Returns the new integer; None if the key is not there. Raises TypeError if the value is not
        an integer of 64 bits, and InvalidOption if its sum would not be one.
        """
        name, seconds = shorten_key(key), bound_ttl(ttl)
        try:
            return self._write(
                lambda table: table.increment(name, by, ttl=seconds, create=create, renew=False)
            )
        except InvalidOption as error:
            stored = self._find(key)
            if stored is _MISSING or type(stored) is int:
                raise
            raise TypeError(
                f"the value of {key!r} is not an integer of 64 bits: it has no sum"
            ) from error

    def delete(self, *keys: str) -> int:
        """Delete the keys; return how many were there."""
        return self._table.run(lambda table: table.delete(*map(shorten_key, keys)))

    def clear(self, prefix: str = "") -> None:
        """Delete all keys in one step, or those that begin with ``prefix``, a page at a time."""
        if not prefix:
            self._table.run(lambda table: table.clear())
            return
        while keys := self._table.run(lambda table: table.keys(prefix)):
            self.delete(*keys)

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        self._table.close()

    # ---- values and room ----

    @property
    def _most_bytes(self) -> int:
        """The most bytes of a value: one that takes the whole table would empty it for nothing."""
        limit = self._table.table.max_bytes
        return MAX_VALUE if limit is None else min(MAX_VALUE, limit // 2)

    def _encode(self, value: Any) -> bytes | int:
        if type(value) is int and -(1 << 63) <= value < 1 << 63:
            return value
        encoded = self.serializer.dumps(value)
        if not isinstance(encoded, bytes):
            raise TypeError(
                f"a value of type {type(value).__name__} cannot be cached: the serializer has "
                f"returned {type(encoded).__name__} for it, not bytes"
            )
        if len(encoded) > self._most_bytes:
            raise MessageTooLarge(
                f"the value has {len(encoded)} bytes, and may have {self._most_bytes}: half of the "
                f"table's max_bytes, and {MAX_VALUE} at most"
            )
        return encoded

    def _decode(self, stored: Any) -> Any:
        return self.serializer.loads(stored) if isinstance(stored, bytes) else stored

    def _write(self, call: Callable[[shmq.Table], _T]) -> _T:
        """The result of the call. A full table loses what expires first, until there is room."""
        most = _EVICTED
        while True:
            try:
                return self._table.run(call)
            except NoSpace:
                if not self._table.run(lambda table, most=most: table.clear(most)):  # type: ignore[misc]
                    raise
            most *= 2


def _find_serializer(given: str | Serializer, place: Location) -> Serializer:
    if given == "pickle" and place.is_remote:
        raise InvalidOption(
            f"serializer='pickle' is for tables of this host: whoever writes to a table of "
            f"{place.target} could run code here; use 'json' or 'msgpack'"
        )
    if isinstance(given, str):
        if given not in _SERIALIZERS:
            raise InvalidOption(
                f"serializer={given!r} must be {', '.join(map(repr, _SERIALIZERS))}, or an object "
                f"with dumps and loads"
            )
        return _SERIALIZERS[given]
    if not callable(getattr(given, "dumps", None)) or not callable(getattr(given, "loads", None)):
        raise TypeError(f"serializer={given!r} must have the methods dumps and loads")
    return given


def _size_of(stored: bytes | int) -> int:
    return len(stored) if isinstance(stored, bytes) else 9


def has_expired(ttl: float | None) -> bool:
    """Whether a value with this ttl is there for no call."""
    return ttl is not None and ttl <= 0


def bound_ttl(ttl: float | None) -> float | None:
    """The ttl of a table for that of a framework."""
    return None if ttl is None or ttl > MAX_TTL else max(ttl, _SHORTEST)
