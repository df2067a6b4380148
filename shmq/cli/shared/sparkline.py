"""A row of numbers as a row of small bars, which rich does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last ``width`` values, of which the largest is a whole bar, with spaces before them.

    Zero is the lowest bar, and nothing else is.
    """
    last = values[-width:] if width > 0 else ()
    most = max(last, default=0)
    return "".join(_bar(value, most) for value in last).rjust(max(width, 0))


def _bar(value: float, most: float) -> str:
    if value <= 0:
        return _BARS[0]
    return _BARS[max(round(value / most * (len(_BARS) - 1)), 1)]
