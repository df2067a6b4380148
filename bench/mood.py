"""The mood of the machine: what else it did during a run, and how fast it was meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from bench.compiled import no_compiler
from bench.limits import play
from bench.machine import two_cores

#: The field of stolen time in the first line of /proc/stat, behind its name.
STEAL = 7


class Mood:
    """Samples of the machine's mood since this object was made."""

    def __init__(self) -> None:
        self.crossings: list[float] = []
        self._paces: list[float] = []
        self._loads: list[float] = []
        self._begun = _ticks()

    def look(self) -> float | None:
        """Take a sample; what a cache line takes to cross in ns, None without a compiler."""
        self._loads.append(os.getloadavg()[0])
        if no_compiler():
            return None
        crossing, *paces = play("mood", *two_cores())
        self.crossings.append(crossing)
        self._paces += paces
        return crossing

    def figures(self) -> dict[str, float]:
        """The figures since the beginning, only those that could be measured.

        ``steal``: the share of the cores' time that the host gave to others. ``load``: the most
        processes that ran or waited for a core, on average over a minute. ``spread``: the
        slowest arithmetic divided by the fastest. ``crossing``, ``crossing_least`` and
        ``crossing_most``: what a cache line took from one core to the other, in ns.
        """
        spent = [now - then for now, then in zip(_ticks(), self._begun, strict=True)]
        found = {"steal": spent[STEAL] / max(1, sum(spent))}
        if self._loads:
            found["load"] = max(self._loads)
        if self.crossings:
            ordered = sorted(self.crossings)
            found["crossing"] = ordered[len(ordered) // 2]
            found["crossing_least"], found["crossing_most"] = ordered[0], ordered[-1]
            found["spread"] = max(self._paces) / min(self._paces)
        return found


def described(figures: dict[str, float]) -> str:
    """The figures in a sentence."""
    said = []
    if "steal" in figures:
        said.append(f"{figures['steal']:.1%} of the cores' time stolen")
    if "load" in figures:
        said.append(f"load up to {figures['load']:.1f}")
    if "spread" in figures:
        said.append(f"the same arithmetic took up to {figures['spread']:.2f} times its best")
        least, most = figures["crossing_least"], figures["crossing_most"]
        said.append(
            f"a cache line crossed between the cores in {figures['crossing']:.0f} ns "
            f"({least:.0f} to {most:.0f})"
        )
    return "; ".join(said)


def _ticks() -> list[int]:
    """The cores' time by use; behind STEAL it is counted twice."""
    words = Path("/proc/stat").read_text().partition("\n")[0].split()
    return [int(word) for word in words[1 : STEAL + 2]]
