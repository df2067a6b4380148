"""The table in which a task framework keeps results, limits or schedules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import shmq
from shmq.api.names import given_name
from shmq.api.table import MAX_KEY, TableDurability
from shmq.extras.frameworks.task_queues import Connection
from shmq.fork_safe import new_lock

_T = TypeVar("_T")

#: The most characters of an error's text in a stored outcome.
_LONGEST_TEXT: Final = 1000
#: How many characters of a long key are kept beside its hash: "#" and 64 hexadecimal digits.
_READABLE: Final = MAX_KEY - 65


class ResultNotStored(Exception):
    """The outcome of a task that has run, and whose result cannot be stored.

    It is stored instead of the result, so that the caller gets it at once.
    """

    @classmethod
    def of(cls, error: BaseException) -> ResultNotStored:
        """The outcome for the error with which the result was rejected."""
        text = str(error)[:_LONGEST_TEXT].encode("utf-8", "backslashreplace").decode()
        return cls(
            f"the task has run, but its result cannot be stored: {type(error).__name__}: {text}"
        )


def shorten_key(key: str) -> str:
    """The key of a table for any text: one that is too long ends with a hash of all of it."""
    if len(key) <= MAX_KEY:
        return key
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
    return f"{key[:_READABLE]}#{digest}"


class TaskTable:
    """A table of any name, created at its first use, and again if it was deleted."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        durability: TableDurability,
        max_bytes: int | None = None,
    ) -> None:
        self._connection = connection
        self._name = given_name(name)
        self._durability = durability
        self._max_bytes = max_bytes
        self._lock = new_lock()
        self._opened: shmq.Table | None = None

    @property
    def table(self) -> shmq.Table:
        """The table."""
        with self._lock:
            if self._opened is None:
                broker = self._connection.broker
                self._opened = broker.ensure_table(
                    self._name, self._durability, max_bytes=self._max_bytes
                )
            return self._opened

    def run(self, call: Callable[[shmq.Table], _T]) -> _T:
        """The result of ``call(table)``, with a new table if this one was deleted."""
        table = self.table
        try:
            return call(table)
        except shmq.TableDeleted:
            self._forget(table)
        return call(self.table)

    def store(self, key: str, value: Any, ttl: float | None) -> None:
        """Set the value; again if the connection was lost, so it may be set twice."""
        try:
            self.run(lambda table: table.set(key, value, ttl=ttl))
        except shmq.ConnectionLost:
            self.run(lambda table: table.set(key, value, ttl=ttl))

    def _forget(self, table: shmq.Table) -> None:
        with self._lock:
            if self._opened is table:
                self._opened = None

    def close(self) -> None:
        """Close the table and its connection; the next use opens both again."""
        with self._lock:
            self._opened = None
        self._connection.close()
