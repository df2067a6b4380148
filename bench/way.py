"""A way of passing messages between processes: the interface that each peer implements."""

from __future__ import annotations

import abc
import importlib.util
import os
from collections.abc import Callable
from typing import ClassVar

#: Sends every body of a round, in order.
Send = Callable[[], None]
#: Receives a round and returns the same as :meth:`Way.expected` for its bodies, in order.
Receive = Callable[[], list[bytes]]
#: Sends a body; receives one.
SendOne = Callable[[bytes], object]
ReceiveOne = Callable[[], bytes]

#: Messages in a batch.
BATCH = 64
#: Bytes of bodies that every ring and queue holds, and the fewest bodies.
ROOM, FEWEST = 1 << 20, 4


def equal_places(size: int) -> int:
    """How many bodies of that size fit into every ring and queue of a row: as many as in all."""
    return max(FEWEST, ROOM // size)


class Way(abc.ABC):
    """One way of one peer. It is made in one process and used in two others.

    The functions that it returns are timed: loops with all names bound beforehand and only the
    peer's own calls inside. They are called once a round.
    """

    #: Its name in the table.
    label: ClassVar[str]
    #: The module that it needs; without the module it is left out.
    needs: ClassVar[str | None] = None
    #: Whether only the kernel decides how many bodies may wait.
    fixed: ClassVar[bool] = False
    #: What a reader of the table must know about it.
    note: ClassVar[str] = ""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        #: How many bodies may wait; None if only the kernel decides that.
        self.places: int | None = None if self.fixed else equal_places(size)
        #: Whether the current round is compared byte by byte. Timed rounds are compared by a
        #: sample only if the comparison would dominate the measurement: see :mod:`bench.large`.
        self.whole = True

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be measured here; None if it can."""
        if cls.needs is not None and importlib.util.find_spec(cls.needs) is None:
            return f"{cls.needs} is not installed"
        return None

    def create(self) -> None:
        """Make what must exist before either side opens it."""

    @abc.abstractmethod
    def sender(self, bodies: list[bytes]) -> Send:
        """Open the sending end, in the sending process."""

    @abc.abstractmethod
    def receiver(self, count: int) -> Receive:
        """Open the receiving end, in the receiving process; ``count`` messages a round."""

    def expected(self, bodies: list[bytes]) -> list[bytes]:
        """The expected result of receiving these bodies."""
        return bodies

    def one_sender(self) -> SendOne:
        """Open the sending end for single bodies, in the sending process."""
        raise NotImplementedError(f"{self.label} is not measured in round trips")

    def one_receiver(self) -> ReceiveOne:
        """Open the receiving end for single bodies, in the receiving process."""
        raise NotImplementedError(f"{self.label} is not measured in round trips")

    def opened(self) -> None:
        """Each side calls this once both ends are open, before anything is sent."""

    def settle(self) -> None:
        """Each side calls this after a turn: what goes on behind it must not disturb the next."""

    def finish(self) -> None:
        """Each side calls this after its last round."""

    def remove(self) -> None:
        """Remove everything that :meth:`create` and the sides made, even after a failure."""


if len(os.sched_getaffinity(0)) > 1:

    def idle() -> None:
        """Called between two polls of a peer that can only be polled."""

else:
    idle = os.sched_yield
