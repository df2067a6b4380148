"""A way of passing messages from one process to another: what each peer's file fills in."""

from __future__ import annotations

import abc
import importlib.util
import os
from collections.abc import Callable
from typing import ClassVar

#: Sends every body of a round, in order.
Send = Callable[[], None]
#: Receives a round and returns what :meth:`Way.expected` makes of its bodies, in order.
Receive = Callable[[], list[bytes]]
#: Sends a body; receives one.
SendOne = Callable[[bytes], object]
ReceiveOne = Callable[[], bytes]

#: Messages in a batch, wherever there are batches.
BATCH = 64


class Way(abc.ABC):
    """One way of one peer. It is made in one process and used in two others.

    The functions that it returns are what is timed: loops over what is bound beforehand,
    with nothing in them but the peer's own calls. They are called once a round.
    """

    #: What the table calls it.
    label: ClassVar[str]
    #: The module that it takes; it is left out where that is not installed.
    needs: ClassVar[str | None] = None
    #: What a reader of the table must know of it.
    note: ClassVar[str] = ""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        #: Whether a round that is received now is to be compared byte by byte. Only where
        #: that would itself be what is measured, the rounds that are timed are compared by
        #: a sample: see :mod:`bench.large`.
        self.whole = True

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be measured here; None: it can."""
        if cls.needs is not None and importlib.util.find_spec(cls.needs) is None:
            return f"{cls.needs} is not installed"
        return None

    def create(self) -> None:
        """Make what is there before either side opens it."""

    @abc.abstractmethod
    def sender(self, bodies: list[bytes]) -> Send:
        """Open the sending end, in the sending process."""

    @abc.abstractmethod
    def receiver(self, count: int) -> Receive:
        """Open the receiving end, in the receiving process; ``count`` messages a round."""

    def expected(self, bodies: list[bytes]) -> list[bytes]:
        """What is received of these bodies."""
        return bodies

    def one_sender(self) -> SendOne:
        """Open the sending end for single bodies, in the sending process."""
        raise NotImplementedError(f"{self.label} is not measured in round trips")

    def one_receiver(self) -> ReceiveOne:
        """Open the receiving end for single bodies, in the receiving process."""
        raise NotImplementedError(f"{self.label} is not measured in round trips")

    def opened(self) -> None:
        """Called by each side once both ends are open, before anything is sent."""

    def finish(self) -> None:
        """Called by each side after its last round, outside of what is timed."""

    def remove(self) -> None:
        """Remove what :meth:`create` and the sides made, also after a failure."""


if len(os.sched_getaffinity(0)) > 1:

    def idle() -> None:
        """What a peer that can only be asked again and again does between two askings."""

else:
    idle = os.sched_yield
