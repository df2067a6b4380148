"""The contract of a stream's records, and of what an append returns."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self, overload

__all__ = ["Appended", "AppendedRange", "OnDamage", "Record", "Records"]

#: What becomes of records that a file has no longer as they were written: a
#: :class:`~shmq.DamagedFile`, or they are passed over and counted.
OnDamage = Literal["raise", "skip"]


class Appended(Protocol):
    """What ``Stream.append`` returns: an immutable value."""

    @property
    def partition(self) -> int:
        """The partition that has the record."""

    @property
    def offset(self) -> int:
        """Its number in the partition: from 0 on, without gaps.

        -1 of a duplicate whose first copy is gone already.
        """

    @property
    def timestamp(self) -> float:
        """In seconds since 1970: what the append said, or when it was appended."""

    @property
    def timestamp_ns(self) -> int:
        """The same in ns."""

    @property
    def duplicate(self) -> bool:
        """Whether the producer had appended it before; the offset is then the first one's."""


class AppendedRange(Protocol):
    """Records that ``Stream.append_many`` has appended in one piece: an immutable value."""

    @property
    def partition(self) -> int:
        """The partition that has them."""

    @property
    def first(self) -> int:
        """The offset of the first one; the others follow it. As ``Appended.offset``."""

    @property
    def count(self) -> int:
        """How many they are."""

    @property
    def duplicate(self) -> bool:
        """Whether the producer had appended them before."""

    @property
    def timestamp_ns(self) -> int:
        """When, in ns since 1970; 0 where that is not known."""


class Record(abc.ABC):
    """One record of a stream, as it was appended. It never changes."""

    @property
    @abc.abstractmethod
    def partition(self) -> int:
        """The partition it is in."""

    @property
    @abc.abstractmethod
    def offset(self) -> int:
        """Its number in the partition."""

    @property
    @abc.abstractmethod
    def timestamp(self) -> float:
        """In seconds since 1970: what the append said, or when it was appended."""

    @property
    @abc.abstractmethod
    def timestamp_ns(self) -> int:
        """The same in ns."""

    @property
    @abc.abstractmethod
    def key(self) -> bytes | None:
        """Its key, or None."""

    @property
    @abc.abstractmethod
    def headers(self) -> Mapping[str, Any]:
        """The headers that the producer gave; empty if none.

        Raises :class:`~shmq.ShmqError` where they are damaged.
        """

    @property
    @abc.abstractmethod
    def value(self) -> Any:
        """Its bytes: bytes, or a read-only memoryview where it was read with ``view=True``."""

    @property
    @abc.abstractmethod
    def body(self) -> Any:
        """The value, decoded by its codec. Raises :class:`~shmq.ShmqError` if it is not of it."""

    @property
    @abc.abstractmethod
    def codec(self) -> str:
        """``bytes``, ``text``, ``msgpack``, ``json``, ``command`` or ``event``."""


class Records(abc.ABC):
    """Records of one partition that were read together: a sequence, in order of their offsets.

    As a context manager it releases itself. What was read with ``view=True`` lies in shared
    memory: unless it is pinned as well, it may be overwritten at any time, which
    :meth:`check` tells.
    """

    @property
    @abc.abstractmethod
    def partition(self) -> int:
        """The partition they are of."""

    @property
    @abc.abstractmethod
    def next_offset(self) -> int:
        """Where to read on; that of the call if there was nothing."""

    @property
    @abc.abstractmethod
    def data(self) -> bytes:
        """The records as they lie, one behind the other: the format of `append_block`."""

    @abc.abstractmethod
    def values(self) -> list[Any]:
        """The values alone, as bytes, or as views where they were read so: the fast way."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raises :class:`~shmq.OffsetOutOfRange` if views of it may be overwritten by now.

        What was done with them before is right if it returns. Of a copy, or of what is
        pinned, it is always right.
        """

    @abc.abstractmethod
    def release(self) -> None:
        """Give up what is pinned; the values are no longer to be used. May be called again."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    @abc.abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Record]: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
