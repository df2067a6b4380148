"""What keeps a queue's messages on disk instead of shmq, through its usual Python client."""

from __future__ import annotations

import abc
import contextlib
import importlib.util
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, ClassVar

from bench.disk import folder, servers
from bench.scratch import unique_name
from bench.tcp.server import HOST, running

#: Seconds that SQLite waits for the lock of another process.
PATIENCE = 60.0


class Store(abc.ABC):
    """A store and its client. It is used in the process that measures, and in the producers."""

    #: What a reader of the table must know about it.
    note: ClassVar[str] = ""
    #: The least calls of a turn by each of several processes.
    least: ClassVar[int] = 1

    @classmethod
    @abc.abstractmethod
    def missing(cls) -> str | None:
        """Why it cannot be used here; None if it can."""

    @classmethod
    @abc.abstractmethod
    def place(cls) -> AbstractContextManager[Any]:
        """Create an empty queue for the block; yields what the other methods take."""

    @classmethod
    @abc.abstractmethod
    def inserting(cls, place: Any) -> AbstractContextManager[Callable[[bytes], object]]:
        """Connect for the block; yields a function that returns once its message is on disk."""

    @classmethod
    @abc.abstractmethod
    def stored(cls, place: Any) -> Iterable[bytes]:
        """All messages, in their order."""


class Sqlite(Store):
    """A table of SQLite with synchronous=FULL and a write-ahead log."""

    note = f"SQLite {sqlite3.sqlite_version}, journal_mode=WAL"
    #: In a short turn, most of the time the last processes would sleep, and no process insert.
    least = 16

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`Store`."""
        return folder.missing()

    @classmethod
    @contextlib.contextmanager
    def place(cls) -> Iterator[str]:
        """See :class:`Store`."""
        with folder.scratch_folder() as where:
            path = str(where / "file.db")
            with _connected(path) as base:
                base.execute("PRAGMA journal_mode=WAL")
                base.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
            yield path

    @classmethod
    @contextlib.contextmanager
    def inserting(cls, place: str) -> Iterator[Callable[[bytes], object]]:
        """See :class:`Store`."""
        with _connected(place) as base:
            yield lambda body: base.execute("INSERT INTO queue (body) VALUES (?)", (body,))

    @classmethod
    def stored(cls, place: str) -> Iterable[bytes]:
        """See :class:`Store`."""
        with _connected(place) as base:
            return [body for (body,) in base.execute("SELECT body FROM queue ORDER BY id")]


@contextlib.contextmanager
def _connected(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as base:
        base.execute("PRAGMA synchronous=FULL")
        yield base


class Redis(Store):
    """A list of Redis with appendfsync=always."""

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`Store`."""
        return _not_installed("redis") or servers.Redis.missing()

    @classmethod
    @contextlib.contextmanager
    def place(cls) -> Iterator[tuple[int, str]]:
        """See :class:`Store`."""
        port, key = running(servers.Redis).port, unique_name()
        try:
            yield port, key
        finally:
            with _redis(port) as client:
                client.delete(key)

    @classmethod
    @contextlib.contextmanager
    def inserting(cls, place: tuple[int, str]) -> Iterator[Callable[[bytes], object]]:
        """See :class:`Store`."""
        port, key = place
        with _redis(port) as client:
            yield lambda body: client.lpush(key, body)

    @classmethod
    def stored(cls, place: tuple[int, str]) -> Iterable[bytes]:
        """See :class:`Store`."""
        port, key = place
        with _redis(port) as client:
            found: list[bytes] = client.lrange(key, 0, -1)
        return reversed(found)


def _redis(port: int) -> Any:
    import redis

    return redis.Redis(HOST, port)


class Postgres(Store):
    """A table of PostgreSQL, over its UNIX socket."""

    note = "fsync=on, synchronous_commit=on"

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`Store`."""
        return _not_installed("psycopg") or servers.Postgres.missing()

    @classmethod
    @contextlib.contextmanager
    def place(cls) -> Iterator[tuple[str, str]]:
        """See :class:`Store`."""
        conninfo, table = running(servers.Postgres).conninfo, f'"{unique_name()}"'
        with _postgres(conninfo) as base:
            base.execute(
                f"CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
                "body bytea NOT NULL)"
            )
        try:
            yield conninfo, table
        finally:
            with _postgres(conninfo) as base:
                base.execute(f"DROP TABLE {table}")

    @classmethod
    @contextlib.contextmanager
    def inserting(cls, place: tuple[str, str]) -> Iterator[Callable[[bytes], object]]:
        """See :class:`Store`."""
        conninfo, table = place
        statement = f"INSERT INTO {table} (body) VALUES (%s)"
        with _postgres(conninfo) as base:
            yield lambda body: base.execute(statement, (body,))

    @classmethod
    def stored(cls, place: tuple[str, str]) -> Iterable[bytes]:
        """See :class:`Store`."""
        conninfo, table = place
        with _postgres(conninfo) as base:
            return [body for (body,) in base.execute(f"SELECT body FROM {table} ORDER BY id")]


def _postgres(conninfo: str) -> Any:
    import psycopg

    return psycopg.connect(conninfo, autocommit=True)


def _not_installed(module: str) -> str | None:
    return None if importlib.util.find_spec(module) else f"{module} is not installed"
