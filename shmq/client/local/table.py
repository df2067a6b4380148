"""The tables of this host, which each process reads and writes itself, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shmq.client.handles.table import TableHandle
from shmq.client.ports.broker import CollectionPort
from shmq.client.shared.pickling import reduce
from shmq.host.namespace.namespace import Namespace
from shmq.model.table import files
from shmq.model.table.entries import Entries
from shmq.model.table.entry import Bounds, Stored

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

    def _poll(self, key: str) -> Stored | None:
        return self._entries.look(key)

    def _find(self, keys: list[str]) -> dict[str, Stored]:
        return self._entries.find(keys)

    def _store(self, entries: dict[str, Stored], ttl: float | None) -> None:
        self._entries.store(entries, ttl)

    def _add(self, key: str, stored: Stored, ttl: float | None) -> bool:
        return self._entries.add(key, stored, ttl)

    def _delete(self, keys: list[str]) -> int:
        return self._entries.delete(keys)

    def _expire(self, key: str, ttl: float | None) -> bool:
        return self._entries.expire(key, ttl)

    def _increment(self, key: str, by: int, ttl: float | None, bounds: Bounds) -> int | None:
        return self._entries.increment(key, by, ttl, bounds)

    def _keys(self, prefix: str, limit: int, after: str) -> list[str]:
        return self._entries.keys(prefix, limit, after)

    def _changed(self) -> object:
        return self._entries.stamp()

    def __len__(self) -> int:
        return self._entries.count()

    def close(self) -> None:
        self.database.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, _attach_by_name, self._namespace.name, self._name)

    def __repr__(self) -> str:
        return f"<LocalTable {self._name!r} ({self._durability}) of {self._namespace.name!r}>"


def _attach_by_name(namespace: str, name: str) -> LocalTable:
    return TableCollection(Namespace.of(namespace)).open(name)
