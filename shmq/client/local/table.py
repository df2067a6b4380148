"""The tables of this host, which each process reads and writes itself, without a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, Unpack

from shmq.api.keywords import IncrementKeywords
from shmq.client.handles.table import TableHandle, check_increment
from shmq.client.ports.broker import CollectionPort
from shmq.client.ports.steps import Steps
from shmq.client.shared.blocking_calls import run_in_turn
from shmq.client.shared.pickling import reduce
from shmq.host.namespace.namespace import Namespace
from shmq.model.table import files
from shmq.model.table.entries import Entries
from shmq.model.table.entry import Stored, Terms, check_key, check_ttl, decoded, encoded

_T = TypeVar("_T")

#: The longest pause of a wait, in seconds.
_PAUSE: Final = 0.02


class TableCollection(CollectionPort):
    """The tables of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def make(
        self, name: str, wanted: Mapping[str, Any], given: Mapping[str, Any], exact: bool
    ) -> LocalTable:
        del given, exact
        return LocalTable(self._namespace, files.make(self._namespace, name, **wanted))

    def open(self, name: str, to_put: bool = False) -> LocalTable:
        del to_put
        return LocalTable(self._namespace, files.find(self._namespace, name))

    def delete(self, name: str) -> None:
        files.remove(self._namespace, name)

    def summaries(self) -> list[str]:
        return [each.name for each in files.tables_of(self._namespace)]


class LocalTable(TableHandle):
    """A table of this host. Threads may share it; a pickled one attaches again."""

    _longest_pause = _PAUSE

    def __init__(self, namespace: Namespace, file: files.TableFile) -> None:
        namespace.processes.own_number()  # refuses another clock than that of the deadlines
        self._namespace = namespace
        #: The number that no other table has, not even a later one of its name.
        self.identity = file.identity
        self.database = file.opened()
        try:
            with self.database.using():
                super().__init__(file.name, file.durability, self.database.max_bytes)
        except BaseException:
            self.database.close()
            raise
        self._entries = Entries(self.database)

    @property
    def entries(self) -> Entries:
        """Its operations with encoded values, for a server."""
        return self._entries

    def _call(self, kind: str, call: Callable[..., _T], *arguments: Any) -> Steps[_T]:
        """Make a call of the entries.

        A thread makes those of all tasks, as SQLite carries out one at a time. Another one makes
        writes, which may wait for other processes; tables on disk have two threads of their own.
        """
        found: _T = yield (
            lambda: call(*arguments),
            lambda: run_in_turn(f"table {kind} {self._durability}", call, *arguments),
        )
        return found

    def get(self, key: str, default: Any = None) -> Any:
        stored = self._entries.look(check_key(key))  # as `_getting`, for speed
        return default if stored is None else decoded(stored)

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        # As `_setting`, for speed.
        self._entries.store({check_key(key): encoded(value, self.default)}, check_ttl(ttl))

    def increment(self, key: str, by: int = 1, **how: Unpack[IncrementKeywords]) -> int | None:
        return self._entries.increment(*check_increment(key, by, **how))  # as `_incrementing`

    def _poll(self, key: str) -> Steps[Stored | None]:
        return self._call("read", self._entries.look, key)

    def _find(self, keys: list[str]) -> Steps[dict[str, Stored]]:
        return self._call("read", self._entries.find, keys)

    def _look(self, keys: list[str], state: object) -> Steps[tuple[dict[str, Stored], object]]:
        return self._call("read", self._entries.find_news, keys, state)

    def _keys(self, prefix: str, limit: int, after: str) -> Steps[list[str]]:
        return self._call("read", self._entries.keys, prefix, limit, after)

    def _count(self) -> Steps[int]:
        return self._call("read", self._entries.count)

    def _store(self, entries: dict[str, Stored], ttl: float | None) -> Steps[None]:
        return self._call("write", self._entries.store, entries, ttl)

    def _add(self, key: str, stored: Stored, ttl: float | None) -> Steps[bool]:
        return self._call("write", self._entries.add, key, stored, ttl)

    def _delete(self, keys: list[str]) -> Steps[int]:
        return self._call("write", self._entries.delete, keys)

    def _clear(self, most: int | None) -> Steps[int]:
        return self._call("write", self._entries.clear, most)

    def _expire(self, key: str, ttl: float | None) -> Steps[bool]:
        return self._call("write", self._entries.expire, key, ttl)

    def _increment(self, key: str, by: int, ttl: float | None, terms: Terms) -> Steps[int | None]:
        return self._call("write", self._entries.increment, key, by, ttl, terms)

    def close(self) -> None:
        self.database.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, _attach_by_name, self._namespace.name, self._name)

    def __repr__(self) -> str:
        return f"<LocalTable {self._name!r} ({self._durability}) of {self._namespace.name!r}>"


def _attach_by_name(namespace: str, name: str) -> LocalTable:
    return TableCollection(Namespace.of(namespace)).open(name)
