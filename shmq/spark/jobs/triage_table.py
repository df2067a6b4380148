"""The kinds of dead letters as a table on standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["show"]

_RIGHT: Final = ("row", "count", "bytes")
_UNBOUNDED: Final = 100_000


def show(report: Sequence[Mapping[str, Any]], *, more: bool) -> None:
    """Print a row for each kind, the largest first; ``more``: smaller ones are left out."""
    terminal = sys.stdout.isatty()
    console = Console(
        file=sys.stdout, width=None if terminal else _UNBOUNDED, emoji=False, highlight=False
    )
    made = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False)
    names = ("row", "count", "reason", "queue", "codec", "shape", "first", "last", "sample")
    for name in names:
        made.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=not terminal)
    for row in report:
        made.add_row(*(Text(_cell(row, name)) for name in names))
    console.print(made)
    if more:
        console.print("and smaller kinds: raise limit in [triage] to see them")


def _cell(row: Mapping[str, Any], name: str) -> str:
    if name == "sample":
        samples = row["samples"]
        return _plain(samples[0]["body"])[:60] if samples else ""
    value = row[name]
    if name in ("first", "last"):
        return str(value.strftime("%Y-%m-%d %H:%M:%SZ"))
    return _plain(str(value))


def _plain(text: str) -> str:
    """The text with a terminal's control characters escaped."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
