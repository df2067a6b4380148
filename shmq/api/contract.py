"""What the contracts share: how ``with`` blocks close and settle, and their docstrings."""

from __future__ import annotations

import abc
import inspect
from types import TracebackType
from typing import Any, Self


class Closing(abc.ABC):
    """A context manager that closes itself at the end of its block, whatever happened in it."""

    @abc.abstractmethod
    def close(self) -> None:
        """End its use."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing(abc.ABC):
    """`Closing` for asyncio."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """End its use."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Settling(abc.ABC):
    """Acknowledged at the end of its block, or returned on an exception, unless already settled."""

    @property
    @abc.abstractmethod
    def settled(self) -> bool:
        """Whether it was already settled."""

    @abc.abstractmethod
    def ack(self) -> Any:
        """Acknowledge it."""

    @abc.abstractmethod
    def nack(self) -> Any:
        """Return it."""

    def _return_failed(self, error: BaseException | None) -> None:
        """Return it because its block ended with this exception."""
        del error  # what keeps no errors
        self.nack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.settled:
            return
        if kind is None:
            self.ack()
        else:
            self._return_failed(error)


def unwrapped(handle: Any) -> Any:
    """The handle that a proxy, such as that of tracing, stands for; any other as is."""
    return getattr(handle, "__wrapped__", handle)


def document(kind: type, promised: type) -> None:
    """Give the methods of ``kind`` the docstrings of the contract ``promised``.

    For a class that does not inherit the contract, or inherits other docstrings before it.
    """
    for name, method in inspect.getmembers(promised, inspect.isfunction):
        if hasattr(kind, name) and not name.startswith("_"):
            getattr(kind, name).__doc__ = method.__doc__
