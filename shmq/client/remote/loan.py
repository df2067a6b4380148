"""A loan of a remote queue: memory of this process, which is put at the commit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType

from shmq import api
from shmq.errors import InvalidOption
from shmq.native._core import plain_number

__all__ = ["RemoteLoan"]


class RemoteLoan(api.Loan):
    """See :class:`shmq.api.Loan`. It takes no space in the queue before its commit."""

    def __init__(self, size: int, put: Callable[[memoryview], api.Put]) -> None:
        self._memory = bytearray(size)
        self._view = memoryview(self._memory)
        self._commit = put
        self._put: api.Put | None = None
        self._ended = False

    @property
    def view(self) -> memoryview:
        """See :class:`shmq.api.Loan`."""
        self._check()
        return self._view

    @property
    def put(self) -> api.Put | None:
        """See :class:`shmq.api.Loan`."""
        return self._put

    def commit(self, size: int | None = None) -> api.Put:
        """See :class:`shmq.api.Loan`."""
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
            self._put = self._commit(body)
        return self._put

    def drop(self) -> None:
        """See :class:`shmq.api.Loan`."""
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
