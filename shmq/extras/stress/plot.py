"""A run over its time as a file by matplotlib: rates, backlog and latencies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from shmq.extras.stress.plan import Sample

#: The percentiles that are drawn, with their colours.
_SHOWN: Final = {"p50": "#0b62c4", "p99": "#b2520a", "max": "#888888"}


def figure(samples: Sequence[Sample], path: Path) -> None:
    """Write the plot to a file, in the format of its suffix.

    Raises ImportError without matplotlib, ValueError for an unknown format, and OSError.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - of an extra, and slow to load

    made = Figure(figsize=(8, 8), layout="constrained")
    rates, backlog, latency = made.subplots(3, sharex=True)
    _plot_line(rates, samples, [one.put_per_second for one in samples], "put", "#0b62c4")
    _plot_line(rates, samples, [one.got_per_second for one in samples], "got", "#2a8a3e")
    rates.set_ylabel("messages per second")
    _plot_line(backlog, samples, [one.backlog for one in samples], "backlog", "#0b62c4")
    backlog.set_ylabel("messages")
    moved = [one for one in samples if one.latency["max"]]
    for part, colour in _SHOWN.items():
        _plot_line(latency, moved, [one.latency[part] for one in moved], part, colour)
    latency.set_ylabel("put to get, µs")
    latency.set_yscale("symlog", linthresh=1)
    latency.set_xlabel("seconds")
    for axes in (rates, backlog, latency):
        axes.set_ylim(bottom=0)
        axes.legend()
    made.savefig(path)


def _plot_line(
    axes: Any, samples: Sequence[Sample], values: Sequence[float], name: str, colour: str
) -> None:
    axes.plot([one.seconds for one in samples], values, label=name, color=colour, marker=".")
