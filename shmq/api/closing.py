"""What is closed at the end of a ``with`` block."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing(abc.ABC):
    """Whatever happened in the block, it is closed at its end."""

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
