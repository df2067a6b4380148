"""The base of messages and records that a ``with`` block settles at its end."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, Self

__all__ = ["Settling"]


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
            self.nack()
