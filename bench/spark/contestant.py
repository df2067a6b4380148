"""A contestant in a row on Spark."""

from __future__ import annotations

import abc
import contextlib
import copy
from collections.abc import Iterator
from typing import Self

from bench.row import Contestant, Role, Turn
from bench.spark import session
from bench.spark.figures import ROWS, TINY


class OnSpark(Contestant):
    """A kind of work on a number of rows."""

    role: Role = "shmq"
    #: Whether it has run before: Spark's first query of a kind takes seconds longer.
    warm = False

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return session.missing()

    def sized(self, rows: int) -> Self:
        """The same contestant with that many rows."""
        other = copy.copy(self)
        other.rows = rows
        return other

    @abc.abstractmethod
    def work(self) -> dict[str, float]:
        """Measure and verify once, with its number of rows."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        yield lambda _: self._turn()

    def _turn(self) -> dict[str, float]:
        if not self.warm and self.rows > TINY:
            self.tiny().work()
        self.warm = True
        return self.work()

    def tiny(self) -> Self:
        """See :class:`bench.row.Contestant`."""
        return self.sized(TINY)


class Adorned(OnSpark):
    """A kind of work on bare values, or on values with a key and two headers."""

    name: str

    def __init__(self, rows: int = ROWS, *, adorned: bool = False) -> None:
        super().__init__(rows)
        self.adorned = adorned
        self.label = f"{self.name}, key and headers" if adorned else self.name
