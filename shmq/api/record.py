"""The contract of a stream's records, and of the results of appends."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self, overload

#: What a reader does at records in a damaged file: raise :class:`~shmq.DamagedFile`, or skip and
#: count them.
OnDamage = Literal["raise", "skip"]


class Appended(Protocol):
    """The result of ``Stream.append``: an immutable value."""

    @property
    def partition(self) -> int:
        """The partition of the record."""

    @property
    def offset(self) -> int:
        """The record's number in its partition: from 0 on, without gaps.

        -1 for a duplicate whose first copy is already gone.
        """

    @property
    def timestamp(self) -> float:
        """In seconds since 1970: the timestamp given to the append, or the time of the append."""

    @property
    def timestamp_ns(self) -> int:
        """The same in nanoseconds."""

    @property
    def duplicate(self) -> bool:
        """Whether the producer had already appended it; the offset is then the first copy's."""


class RecordLoan(abc.ABC):
    """The place of one record, whose value the producer writes in place before it is appended.

    As a context manager it returns the writable view, commits on success and drops the record on
    an exception.
    """

    @property
    @abc.abstractmethod
    def view(self) -> memoryview:
        """The writable bytes of the value. Raises ValueError once the loan has ended."""

    @property
    @abc.abstractmethod
    def appended(self) -> Appended | None:
        """The result of the commit; None before the commit, and after a drop."""

    @abc.abstractmethod
    def commit(self, size: int | None = None) -> Appended:
        """Append the record with the first ``size`` bytes as its value (default: all).

        Raises :class:`~shmq.InvalidOption` for a size outside the loan, ValueError if the loan has
        ended, and what :meth:`Stream.append` raises.
        """

    @abc.abstractmethod
    def drop(self) -> None:
        """Append nothing. After a commit this does nothing."""

    @abc.abstractmethod
    def __enter__(self) -> memoryview: ...

    @abc.abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class AppendedRange(Protocol):
    """The range of records that ``Stream.append_many`` appended together: an immutable value."""

    @property
    def partition(self) -> int:
        """The partition of the records."""

    @property
    def first(self) -> int:
        """The offset of the first record; the others follow it. See ``Appended.offset``."""

    @property
    def count(self) -> int:
        """The number of records."""

    @property
    def duplicate(self) -> bool:
        """Whether the producer had already appended them."""

    @property
    def timestamp_ns(self) -> int:
        """The time of the append, in nanoseconds since 1970; 0 if it is not known."""


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
        """In seconds since 1970: the timestamp given to the append, or the time of the append."""

    @property
    @abc.abstractmethod
    def timestamp_ns(self) -> int:
        """The same in nanoseconds."""

    @property
    @abc.abstractmethod
    def key(self) -> bytes | None:
        """Its key, or None."""

    @property
    @abc.abstractmethod
    def headers(self) -> Mapping[str, Any]:
        """The headers that the producer set; empty if none.

        Raises :class:`~shmq.ShmqError` if they are damaged.
        """

    @property
    @abc.abstractmethod
    def value(self) -> Any:
        """Its bytes: as bytes, or as a read-only memoryview if it was read with ``view=True``."""

    @property
    @abc.abstractmethod
    def body(self) -> Any:
        """The value, decoded by its codec. Raises :class:`~shmq.ShmqError` if that fails."""

    @property
    @abc.abstractmethod
    def codec(self) -> str:
        """``bytes``, ``text``, ``msgpack``, ``json``, ``command`` or ``event``."""


class Records(abc.ABC):
    """Records of one partition that were read together: a sequence, in order of their offsets.

    As a context manager it releases itself. Values read with ``view=True`` lie in shared memory:
    unless they are pinned as well, they may be overwritten at any time; :meth:`check` detects that.
    """

    @property
    @abc.abstractmethod
    def partition(self) -> int:
        """The partition of the records."""

    @property
    @abc.abstractmethod
    def next_offset(self) -> int:
        """The offset to read next; the offset of the call if there was no record."""

    @property
    @abc.abstractmethod
    def data(self) -> bytes:
        """The records in encoded form, concatenated: the format of `append_block`."""

    @abc.abstractmethod
    def values(self) -> list[Any]:
        """The values alone, as bytes or as the views that were read: the fast way."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raise :class:`~shmq.OffsetOutOfRange` if the views may have been overwritten by now.

        If it returns, every earlier use of the views saw the right bytes. Copies and pinned records
        always pass.
        """

    @abc.abstractmethod
    def release(self) -> None:
        """Release the pin; the values must not be used afterwards. May be called again."""

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
