"""The base of everything that a ``with`` block closes at its end."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


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
