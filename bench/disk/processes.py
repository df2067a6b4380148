"""Python processes with a connection each, which insert one message after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from bench.disk import flushes, numbered
from bench.disk.confirmed import MOST_CALLS
from bench.disk.stores import Store
from bench.disk.timing import figures, merge, time_calls
from bench.row import Contestant, Turn
from bench.stage import Cast, Side, Stage


class Processes(Contestant):
    """A number of processes that use a peer's Python client as an application does.

    At the end of a visit, the store must have all confirmed messages.
    """

    most = MOST_CALLS

    def __init__(self, label: str, store: type[Store], processes: int) -> None:
        self.label = label
        self.store = store
        self.processes = processes
        self.note = store.note
        self.least = store.least if processes > 1 else 1

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.store.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Processes(self.label, self.store, min(self.processes, 3))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        inserted = 0
        with self.store.place() as place:
            sides = [
                Side(_insert, number, self.store, place, core=None)
                for number in range(self.processes)
            ]
            with Cast(sides) as cast:

                def turn(calls: int) -> dict[str, float]:
                    nonlocal inserted
                    inserted += calls + 1
                    with flushes.at_least(calls):
                        times = merge(cast.turn(calls))
                    return figures(times, calls * self.processes)

                yield turn
            numbered.check(self.store.stored(place), self.processes, inserted)


def _insert(stage: Stage, number: int, store: type[Store], place: Any) -> None:
    """Insert messages in each turn. The first one of each is not timed."""
    first = 0
    with store.inserting(place) as insert:
        for calls in stage.turns():
            bodies = numbered.bodies_of(number, calls + 1, first)
            first += calls + 1
            stage.tell(time_calls(stage.meet, insert, bodies))
