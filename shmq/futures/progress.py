"""The progress of ``map``, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TypeVar

from shmq.lazy_imports import late_imports

T = TypeVar("T")


def show_progress(results: Iterator[T], total: int) -> Iterator[T]:
    """The results, with a bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        return results
    with late_imports:
        from rich.console import Console  # noqa: PLC0415 - on a terminal alone
        from rich.progress import track  # noqa: PLC0415

    return iter(track(results, "Calls", total, console=Console(stderr=True)))
