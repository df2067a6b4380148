"""A loan of private memory, where no shared memory can be lent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from shmq import api
from shmq.errors import InvalidOption
from shmq.native._core import plain_number

#: What the commit returns.
Result = TypeVar("Result")


class BufferedLoan(Generic[Result]):
    """A loan of private memory, which the commit sends or copies; `api.Loan`, `api.RecordLoan`."""

    def __init__(self, size: int, commit: Callable[[memoryview], Result]) -> None:
        self._memory = bytearray(size)
        self._view = memoryview(self._memory)
        self._commit = commit
        self._result: Result | None = None
        self._ended = False

    @property
    def view(self) -> memoryview:
        """The reserved memory, writable."""
        self._check()
        return self._view

    def commit(self, size: int | None = None) -> Result:
        """Put the first ``size`` bytes (None: all)."""
        self._check()
        whole = len(self._memory)
        if size is not None:
            size = plain_number(size)
            if isinstance(size, bool) or not isinstance(size, int):
                raise TypeError(f"size={size!r} must be an int, not {type(size).__name__}")
            if not 0 <= size <= whole:
                raise InvalidOption(f"size={size} is not within the loan: 0 to {whole}")
        self._end()
        with memoryview(self._memory) as view, view[: whole if size is None else size] as body:
            self._result = self._commit(body)
        return self._result

    def drop(self) -> None:
        """Put nothing."""
        if not self._ended:
            self._end()

    def _check(self) -> None:
        if self._ended:
            raise ValueError("the loan has ended: it was committed or dropped")

    def _end(self) -> None:
        self._ended = True
        with contextlib.suppress(BufferError):  # a view of it still exists
            self._view.release()

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if kind is None:
            self.commit()
        else:
            self.drop()


class QueueLoan(BufferedLoan[api.Put], api.Loan):
    """Implements :class:`shmq.api.Loan`. It takes no space in the queue before its commit."""

    @property
    def put(self) -> api.Put | None:
        return self._result
