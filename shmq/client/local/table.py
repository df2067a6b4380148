"""The tables of this host, which each process reads and writes itself, without a server."""

from __future__ import annotations

from typing import Any, Final

from shmq.api.table import TableDurability
from shmq.client.handles.table import TableHandle
from shmq.host.namespace.namespace import Namespace
from shmq.model.table import files
from shmq.model.table.entries import Entries
from shmq.model.table.entry import Bounds, Stored

#: The longest pause of a wait, in seconds.
_PAUSE: Final = 0.02


class Tables:
    """The table methods of a local broker."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def make(self, name: str, durability: TableDurability, max_bytes: int | None) -> LocalTable:
        """Attach to the table, or make it."""
        return LocalTable(self._namespace, files.make(self._namespace, name, durability, max_bytes))

    def open(self, name: str) -> LocalTable:
        """Attach to the table. Raises NoSuchTable."""
        return LocalTable(self._namespace, files.find(self._namespace, name))

    def delete(self, name: str) -> None:
        """Delete the table. Raises NoSuchTable."""
        files.remove(self._namespace, name)

    def names(self) -> list[str]:
        """The names of all tables, sorted. Raises ForeignSegment."""
        return [each.name for each in files.tables_of(self._namespace)]

    def tidy(self) -> None:
        """Remove what dead processes have left in shared memory."""
        files.tidy(self._namespace)


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
        return _attach_by_name, (self._namespace.name, self._name)

    def __repr__(self) -> str:
        return f"<LocalTable {self._name!r} ({self._durability}) of {self._namespace.name!r}>"


def _attach_by_name(namespace: str, name: str) -> LocalTable:
    return Tables(Namespace.of(namespace)).open(name)
