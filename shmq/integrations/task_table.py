"""The table in which a task framework keeps results, limits or schedules."""

from __future__ import annotations

import threading

import shmq
from shmq.api.table import TableDurability
from shmq.integrations.connection import Connection

__all__ = ["TaskTable"]


class TaskTable:
    """A table that is made at its first use if it is absent."""

    def __init__(self, connection: Connection, name: str, durability: TableDurability) -> None:
        self._connection = connection
        self._name = name
        self._durability = durability
        self._lock = threading.Lock()
        self._opened: shmq.Table | None = None

    @property
    def table(self) -> shmq.Table:
        """The table."""
        with self._lock:
            if self._opened is None:
                broker = self._connection.broker
                self._opened = broker.ensure_table(self._name, durability=self._durability)
            return self._opened

    def close(self) -> None:
        """Close the table and its connection; the next use opens both again."""
        with self._lock:
            self._opened = None
        self._connection.close()
