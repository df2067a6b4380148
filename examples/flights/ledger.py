"""The ledger, which counts each flight once, however often it was delivered."""

from __future__ import annotations

from examples.flights.tally import Sums, Tally


class Ledger:
    """The sums per carrier over tallies, with each flight counted at most once.

    A tally of new flights is counted. A tally whose flights were all counted before is left
    out. A tally with both kinds cannot be split: it is left out, and ``torn`` says that the
    sums cannot be trusted.
    """

    def __init__(self, total: int) -> None:
        """For flights numbered 0 to ``total`` - 1."""
        self.total = total
        #: Flights counted, each once.
        self.counted = 0
        #: Deliveries of flights that had been delivered before.
        self.again = 0
        #: Deliveries that were left out because their flights had been counted before.
        self.repeated = 0
        #: Tallies that could be neither counted nor left out.
        self.torn = 0
        self.carriers: dict[str, Sums] = {}
        self._seen = bytearray(total)

    def add(self, tally: Tally) -> bool:
        """Count the ``tally`` or leave it out; True if it was counted.

        Raises IndexError for an unknown number.
        """
        size = len(tally.numbers)
        if tally.again:
            self.again += size
        seen = sum(map(self._seen.__getitem__, tally.numbers))
        if seen == 0 and len(set(tally.numbers)) == size:
            self._count(tally)
            return True
        if seen == size:
            self.repeated += size
        else:
            self.torn += 1
        return False

    @property
    def complete(self) -> bool:
        """Whether every flight is counted."""
        return self.counted == self.total

    def missing(self) -> list[int]:
        """The numbers of the flights that are not counted."""
        return [number for number, seen in enumerate(self._seen) if not seen]

    def _count(self, tally: Tally) -> None:
        for number in tally.numbers:
            self._seen[number] = 1
        self.counted += len(tally.numbers)
        for code, sums in tally.carriers.items():
            self.carriers.setdefault(code, Sums()).add(sums)
