"""The contract of a table: values by key, each with a time to live."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeVar, overload

from shmq.api.contract import Closing

_Default = TypeVar("_Default")

#: Where a table is: in shared memory, or in the namespace's data directory.
TableDurability = Literal["memory", "disk"]

#: The most characters of a key.
MAX_KEY: Final = 512
#: The longest ttl, in seconds: ten years.
MAX_TTL: Final = 10 * 366 * 86_400.0
#: The most bytes of an encoded value.
MAX_VALUE: Final = 16 << 20
#: The most keys that one call of ``keys`` returns, and that ``sum_with`` may name.
MAX_KEYS: Final = 10_000
#: The least ``max_bytes`` of a table.
MIN_BYTES: Final = 64 << 10


class Table(Closing):
    """A small key-value store that processes share: for results of tasks, counters, rate limits.

    A key is a str of 1 to 512 characters. A value is what ``Queue.put`` takes: bytes, a str, or
    what msgpack holds, up to 16 MiB encoded. ``ttl`` is a time to live in seconds; None: for ever.
    A value whose time has expired is there for no caller any more; later writes free its memory.

    Each call is one atomic step for all processes: a process that is killed leaves it done or
    not done. Threads may share a handle, and a handle can be used after a fork; a pickled one
    attaches again. Every method raises :class:`~shmq.TableDeleted` once the table was deleted,
    :class:`~shmq.LockTimeout`, and :class:`~shmq.InvalidOption` or TypeError for a wrong argument;
    those that write raise :class:`~shmq.NoSpace`, too, and then have changed nothing.

    A call has a twin for asyncio that does not block the event loop: ``aget`` for ``get``,
    ``await_`` for ``wait``, ``alen`` for ``len``, and so on. On this host, the twins of a process
    share four threads: for reads and writes of tables in memory and on disk; each makes one call at
    a time, in the order of the calls. Over TCP they need no thread. If the task is cancelled, it is
    unknown whether the call is carried out.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The table's name."""

    @property
    @abc.abstractmethod
    def durability(self) -> TableDurability:
        """``"memory"``: until the machine's end; ``"disk"``: a write is on disk when it returns."""

    @property
    @abc.abstractmethod
    def max_bytes(self) -> int | None:
        """The most bytes that the table may take; None: no limit of its own."""

    # ---- reading ----

    @overload
    @abc.abstractmethod
    def get(self, key: str) -> Any | None: ...

    @overload
    @abc.abstractmethod
    def get(self, key: str, default: _Default) -> Any | _Default: ...

    @abc.abstractmethod
    def get(self, key: str, default: Any = None) -> Any:
        """The value of the key, or ``default`` if there is none."""

    @overload
    @abc.abstractmethod
    async def aget(self, key: str) -> Any | None: ...

    @overload
    @abc.abstractmethod
    async def aget(self, key: str, default: _Default) -> Any | _Default: ...

    @abc.abstractmethod
    async def aget(self, key: str, default: Any = None) -> Any:
        """:meth:`get`, without blocking the event loop."""

    @abc.abstractmethod
    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of those keys that are there, as they were at one moment.

        Over TCP, more than 4 MiB of values come in several answers, each of one moment.
        """

    @abc.abstractmethod
    async def aget_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """:meth:`get_many`, without blocking the event loop."""

    @abc.abstractmethod
    def keys(self, prefix: str = "", limit: int = 1000, after: str = "") -> list[str]:
        """Up to ``limit`` keys that begin with ``prefix`` and follow ``after``, sorted.

        The last key of one call is the ``after`` of the next one. ``limit``: 1 to 10,000.
        """

    @abc.abstractmethod
    async def akeys(self, prefix: str = "", limit: int = 1000, after: str = "") -> list[str]:
        """:meth:`keys`, without blocking the event loop."""

    @abc.abstractmethod
    def wait(self, key: str, timeout: float | None = None) -> Any | None:
        """The value of the key, once it is there; None after ``timeout`` seconds without it.

        It looks at pauses that grow to 20 ms, over TCP to 50 ms. ``timeout`` None: no limit.
        """

    @abc.abstractmethod
    async def await_(self, key: str, timeout: float | None = None) -> Any | None:
        """:meth:`wait`, without blocking the event loop.

        One task of the loop looks for all tasks that wait with this handle.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many keys are there. It goes through all of them."""

    @abc.abstractmethod
    async def alen(self) -> int:
        """``len(table)``, without blocking the event loop."""

    # ---- writing ----

    @abc.abstractmethod
    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        """Set the value of the key, and its ttl again.

        Raises :class:`~shmq.MessageTooLarge` for more than 16 MiB, and over TCP for more than the
        server's ``max_frame`` takes.
        """

    @abc.abstractmethod
    async def aset(self, key: str, value: Any, ttl: float | None = None) -> None:
        """:meth:`set`, without blocking the event loop."""

    @abc.abstractmethod
    def set_many(self, mapping: Mapping[str, Any], ttl: float | None = None) -> None:
        """``set`` each of them, all or none."""

    @abc.abstractmethod
    async def aset_many(self, mapping: Mapping[str, Any], ttl: float | None = None) -> None:
        """:meth:`set_many`, without blocking the event loop."""

    @abc.abstractmethod
    def add(self, key: str, value: Any, ttl: float | None = None) -> bool:
        """Set the value if the key is not there; return whether it was set."""

    @abc.abstractmethod
    async def aadd(self, key: str, value: Any, ttl: float | None = None) -> bool:
        """:meth:`add`, without blocking the event loop."""

    @abc.abstractmethod
    def delete(self, *keys: str) -> int:
        """Delete the keys, all or none; return how many were there."""

    @abc.abstractmethod
    async def adelete(self, *keys: str) -> int:
        """:meth:`delete`, without blocking the event loop."""

    @abc.abstractmethod
    def clear(self, most: int | None = None) -> int:
        """Delete all keys, or ``most`` keys, those that expire first; return how many were there.

        Keys without a ttl come last, the oldest first.
        """

    @abc.abstractmethod
    async def aclear(self, most: int | None = None) -> int:
        """:meth:`clear`, without blocking the event loop."""

    @abc.abstractmethod
    def expire(self, key: str, ttl: float | None) -> bool:
        """Give the key a new ttl from now on; return whether it is there."""

    @abc.abstractmethod
    async def aexpire(self, key: str, ttl: float | None) -> bool:
        """:meth:`expire`, without blocking the event loop."""

    @abc.abstractmethod
    def increment(
        self,
        key: str,
        by: int = 1,
        *,
        ttl: float | None = None,
        least: int | None = None,
        most: int | None = None,
        sum_with: Iterable[str] = (),
        create: bool = True,
        renew: bool = True,
    ) -> int | None:
        """Add ``by`` to the integer of the key, 0 if it is not there; return the new one.

        Returns None, and changes nothing, if the sum of the new integer and of those under the keys
        ``sum_with`` would be below ``least`` or above ``most``, and without ``create`` if the key
        is not there. A ``ttl`` is that of a new key, and the new one of a key that is there, which
        keeps its own with ``renew=False`` or without a ``ttl``. So ``increment(key, ttl=60,
        renew=False)`` counts for 60 seconds from the first call on, however often it is called.

        Raises :class:`~shmq.InvalidOption` if a value is not an integer, or would need more
        than 64 bits. A connection to a server that is lost in the meantime leaves it unknown
        whether the call was carried out: it is not repeated.
        """

    @abc.abstractmethod
    async def aincrement(
        self,
        key: str,
        by: int = 1,
        *,
        ttl: float | None = None,
        least: int | None = None,
        most: int | None = None,
        sum_with: Iterable[str] = (),
        create: bool = True,
        renew: bool = True,
    ) -> int | None:
        """:meth:`increment`, without blocking the event loop."""

    @abc.abstractmethod
    def close(self) -> None:
        """Detach from the table. May be called again."""
