"""Who takes part in a row on Spark."""

from __future__ import annotations

import abc
import copy
from typing import Self

from bench.row import Contestant, Role
from bench.spark import session
from bench.spark.figures import ROWS, TINY


class OnSpark(Contestant):
    """A work on so many rows."""

    role: Role = "shmq"
    #: Whether it has done its work before: Spark's first query of a kind takes seconds longer.
    warm = False

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return session.missing()

    def sized(self, rows: int) -> Self:
        """The same with so many rows."""
        other = copy.copy(self)
        other.rows = rows
        return other

    @abc.abstractmethod
    def work(self) -> dict[str, float]:
        """Measure once, verified, with so many rows."""

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        if not self.warm and self.rows > TINY:
            self.tiny().work()
        self.warm = True
        return self.work()

    def tiny(self) -> Self:
        """See :class:`bench.row.Contestant`."""
        return self.sized(TINY)
