"""The wait over the load, as a file by matplotlib, as text, and as points for a page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmq.extras.advice.load import Load
from shmq.units import brief, rate

#: Loads that text shows, as parts of the most.
_SHOWN: Final = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)


def text(load: Load, peak: float, width: int = 40) -> list[str]:
    """A bar for each of some loads; the highest one fills the width."""
    if not load.work:
        return []
    rows = [(part, load.at(load.most * part)) for part in _SHOWN]
    longest = max(one.wait for _, one in rows)
    return [_draw_bar(part, one, longest, peak, width) for part, one in rows] if longest else []


def _draw_bar(part: float, load: Load, longest: float, peak: float, width: int) -> str:
    bar = "█" * max(1 if load.wait else 0, round(load.wait / longest * width))
    near = "  ← peak" if math.isclose(part, min(peak / load.most, 0.98), abs_tol=0.05) else ""
    return f"{part:4.0%} {rate(load.rate):>10}/s {brief(load.wait):>8} {bar}{near}"


def figure(load: Load, peak: float, path: Path) -> None:
    """Write the plot to a file, in the format of its suffix.

    Raises ImportError without matplotlib, ValueError for an unknown format, and OSError.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - of an extra, and slow to load

    made = Figure(figsize=(7, 4), layout="constrained")
    axes = made.add_subplot()
    curve = load.curve(200)
    axes.plot([one for one, _ in curve], [wait * 1e3 for _, wait in curve], color="#0b62c4")
    for at, name, style in ((load.rate, "mean", ":"), (peak, "peak", "--")):
        axes.axvline(at, color="#b2520a", linestyle=style, label=f"{name}: {rate(at)}/s")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, max(load.most, peak * 1.05) if load.work else None)
    axes.set_xlabel("messages per second")
    axes.set_ylabel("mean wait in ms")
    axes.set_title(f"{load.consumers} consumers, {brief(load.work)} of work on a message")
    axes.legend()
    made.savefig(path)


def points(load: Load, width: int, height: int) -> str:
    """The curve as the points of a polyline of SVG; the highest wait is at the top."""
    return " ".join(_draw_points(load, width, height))


def _draw_points(load: Load, width: int, height: int) -> Iterator[str]:
    curve = load.curve(60)
    longest = max((wait for _, wait in curve), default=0.0)
    for at, wait in curve:
        y = height - (wait / longest * height if longest else 0)
        yield f"{at / load.most * width:.1f},{y:.1f}"
