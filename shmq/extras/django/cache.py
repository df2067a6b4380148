"""The backend of Django's cache: values in a table, which all processes of the project share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from shmq.errors import ShmqError
from shmq.extras.frameworks.cache_table import CacheTable
from shmq.fork_safe import new_lock
from shmq.suggestions import suggest

_OPTIONS: Final = ("serializer", "token", "tls", "durability", "max_bytes")
#: Options of Django's other backends, which count entries.
_COUNTS: Final = ("MAX_ENTRIES", "CULL_FREQUENCY")

_tables: dict[str, CacheTable] = {}
_lock: Final = new_lock()


class ShmqCache(BaseCache):
    """Caches values in the table ``shmq://NAMESPACE/TABLE`` that ``LOCATION`` names.

    The settings may have ``OPTIONS``: serializer, token, tls, durability and max_bytes, as for
    `CacheTable`. Raises ImproperlyConfigured for others.
    """

    def __init__(self, location: str, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        self._table = _open(location, params.get("OPTIONS") or {})

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> float | None:
        """Seconds; None: for ever."""
        seconds: float | None = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return seconds

    def _keys(self, keys: Iterable[str], version: int | None) -> dict[str, str]:
        """The keys of the caller, by their keys in the table."""
        return {self.make_and_validate_key(key, version=version): key for key in keys}

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        """The value, or ``default``."""
        return self._table.get(self.make_and_validate_key(key, version=version), default)

    def get_many(self, keys: Iterable[str], version: int | None = None) -> dict[str, Any]:
        """The values of those keys that are there, as they were at one moment."""
        names = self._keys(keys, version)
        return {names[key]: value for key, value in self._table.get_many(names).items()}

    def has_key(self, key: str, version: int | None = None) -> bool:
        """Whether the key is there."""
        return self._table.has(self.make_and_validate_key(key, version=version))

    def set(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        """Set the value."""
        name = self.make_and_validate_key(key, version=version)
        self._table.set(name, value, self.get_backend_timeout(timeout))

    def set_many(
        self, data: Mapping[str, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[str]:
        """Set the values; raises if one cannot be set."""
        names = {name: data[key] for name, key in self._keys(data, version).items()}
        self._table.set_many(names, self.get_backend_timeout(timeout))
        return []

    def add(
        self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Set the value if the key is not there; return whether it was not."""
        name = self.make_and_validate_key(key, version=version)
        return self._table.add(name, value, self.get_backend_timeout(timeout))

    def touch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Give the key a new timeout; return whether it is there."""
        name = self.make_and_validate_key(key, version=version)
        return self._table.expire(name, self.get_backend_timeout(timeout))

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """Add to the integer of the key. Raises ValueError if it is not there, and TypeError."""
        name = self.make_and_validate_key(key, version=version)
        found = self._table.increment(name, delta, None, create=False)
        if found is None:
            raise ValueError(f"Key {key!r} not found")
        return found

    def delete(self, key: str, version: int | None = None) -> bool:
        """Delete the key; return whether it was there."""
        return self._table.delete(self.make_and_validate_key(key, version=version)) > 0

    def delete_many(self, keys: Iterable[str], version: int | None = None) -> None:
        """Delete the keys, all or none."""
        self._table.delete(*self._keys(keys, version))

    def clear(self) -> None:
        """Delete all keys of the table, also those of other versions and prefixes."""
        self._table.clear()


def _open(location: str, options: Mapping[str, Any]) -> CacheTable:
    """The table, which all threads of the process share: Django makes a backend for each.

    Raises ImproperlyConfigured.
    """
    for name in options:
        if name in _COUNTS:
            raise _explain(location, f"{name} is not for this backend: limit the table's max_bytes")
        if name not in _OPTIONS:
            raise _explain(location, f"no option {name!r}: {suggest(name, _OPTIONS)}")
    key = repr((location, sorted(options.items())))
    with _lock:
        if key not in _tables:
            try:
                _tables[key] = CacheTable(location, **_load_serializer(options))
            except (ShmqError, TypeError, ImportError) as error:
                raise _explain(location, str(error)) from error
        return _tables[key]


def _load_serializer(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with the serializer that a dotted path names. Raises ImportError."""
    given = options.get("serializer", "pickle")
    if isinstance(given, str) and "." in given:
        given = import_string(given)
    return {**options, "serializer": given() if isinstance(given, type) else given}


def _explain(location: str, why: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"CACHES, LOCATION {location!r}: {why}")
