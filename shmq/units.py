"""Sizes and times as people write them, read in one way by the command, options and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["fraction_of", "seconds_of", "size_of"]

_QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)", re.ASCII)

_SIZES: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1024**n for n, k in enumerate("kmgt", 1) for unit in (k, f"{k}ib")},
    **{f"{k}b": 1000**n for n, k in enumerate("kmgt", 1)},
}

_TIMES: Final[Mapping[str, float]] = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def size_of(text: str) -> int | None:
    """The bytes in ``4096``, ``64k``, ``16MiB``, ``1.5GiB``; ``KB`` is 1000. None: no size."""
    found = fraction_of(text)
    return int(found) if found is not None and found == int(found) else None


def fraction_of(text: str) -> float | None:
    """As :func:`size_of`, of sizes that need not be whole bytes: ``0.3KiB``."""
    found = _number_and_factor(text, _SIZES)
    if found is None:
        return None
    number, factor = found
    return (float(number) if "." in number else int(number)) * factor


def seconds_of(text: str) -> float | None:
    """The seconds in ``30``, ``0.5``, ``500ms``, ``10min``, ``2h``, ``1d``. None: no time."""
    found = _number_and_factor(text, _TIMES)
    return None if found is None else float(found[0]) * found[1]


def _number_and_factor(text: str, units: Mapping[str, float]) -> tuple[str, float] | None:
    found = _QUANTITY.fullmatch(text.strip())
    factor = units.get(found[2].lower()) if found else None
    return None if found is None or factor is None else (found[1], factor)
