"""``shmq stats --watch``: the last minute of queues and streams, as sparklines."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import Final

import click
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

import shmq
from shmq.api.names import shown_name
from shmq.cli.shared.keyboard import can_be_redrawn, until_left
from shmq.cli.shared.names import EXCHANGE, QUEUE, STREAM
from shmq.cli.shared.output import also_shown, cell, one_line, show, show_json, table
from shmq.cli.top import Row, clipped, look, ordered
from shmq.host.diagnose.activity import Observer

#: How many looks are kept.
_KEPT: Final = 60
#: The widest sparkline and the narrowest one.
_WIDEST: Final = 60
_NARROWEST: Final = 8
#: What is drawn: the heads of the columns, and the numbers of a row.
_DRAWN: Final = {"in/s": "rate_in", "out/s": "rate_out", "visible": "depth"}
#: The columns of the terminal beside the names and sparklines, and the lines beside the rows.
_NUMBERS: Final = 48
_AROUND: Final = 4


class History:
    """The last looks at each queue and stream."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], collections.deque[Row]] = {}

    def saw(self, rows: Sequence[Row]) -> None:
        """Keep the rows of a look; what is not in it is forgotten."""
        before = self._seen
        self._seen = {}
        for row in rows:
            key = (row.kind, row.name)
            self._seen[key] = before.get(key, collections.deque(maxlen=_KEPT))
            self._seen[key].append(row)

    def of(self, row: Row, number: str) -> list[float]:
        """The row's number of that name in each look."""
        return [getattr(one, number) for one in self._seen[row.kind, row.name]]


def watch(
    broker: shmq.Broker, name: str | None, kinds: Sequence[str], interval: float, *, as_json: bool
) -> int:
    """Show them again and again until a signal or the key q; the exit code.

    On a terminal as a table, elsewhere as a line for each in every look, or with ``as_json`` a line
    of JSON for every look. Raises NoSuchQueue and NoSuchStream for a ``name`` that is deleted.
    """
    wanted = [kind for kind in kinds or (QUEUE, STREAM) if kind != EXCHANGE]
    if not wanted:
        raise click.UsageError("--watch shows queues and streams: an exchange keeps nothing")
    console = Console(emoji=False, markup=False, highlight=False)
    drawn = can_be_redrawn() and not as_json
    live = Live(console=console, screen=True, auto_refresh=False) if drawn else None
    history = History()
    with Observer(broker, groups=False) as observer:

        def show_anew(_key: str) -> None:
            rows = _observe(observer, name, wanted)
            history.saw(rows)
            if live is not None:
                live.update(_build_frame(rows, history, console, broker.namespace), refresh=True)
            else:
                _print_rows(rows, as_json=as_json)

        return until_left(live or contextlib.nullcontext(), interval, show_anew)


def _observe(observer: Observer, name: str | None, kinds: Sequence[str]) -> list[Row]:
    rows = [row for row in ordered(look(observer, kinds), "name") if name in {None, row.name}]
    if name is not None and not rows:
        error = shmq.NoSuchStream if kinds[0] == STREAM else shmq.NoSuchQueue
        raise error(f"{kinds[0]} {name!r} was deleted while it was watched")
    return rows


def _print_rows(rows: Sequence[Row], *, as_json: bool) -> None:
    """The rows of a look as lines; the reader of a pipe gets them at once."""
    if as_json:
        show_json([also_shown(dataclasses.asdict(row)) for row in rows])
    else:
        at = time.strftime("%H:%M:%S")
        for row in rows:
            show(f"{at} {one_line(_format_line(row))}")
    if sys.stdout is not None:
        sys.stdout.flush()


def _format_line(row: Row) -> str:
    """``orders: visible 3, in flight 0, in 5/s, out 2/s``."""
    if row.problem is not None:
        return f"{shown_name(row.name)}: {row.problem}"
    held = f"visible {row.depth:,}" if row.kind == QUEUE else f"records {row.depth:,}"
    parts = [held]
    if row.kind == QUEUE:
        parts.append(f"in flight {row.in_flight:,}")
    parts.append(f"in {row.rate_in:,.0f}/s")
    if row.kind == QUEUE:
        parts.append(f"out {row.rate_out:,.0f}/s")
    return f"{shown_name(row.name)}: {', '.join(parts)}"


def _build_frame(rows: Sequence[Row], history: History, console: Console, namespace: str) -> Group:
    """All that the screen shows, cut to its size."""
    width, height = console.size
    names = [shown_name(row.name) for row in rows]
    name = min(max(map(cell_len, names), default=0), max(width // 4, 8))
    wide = min(max((width - name - _NUMBERS) // len(_DRAWN), _NARROWEST), _WIDEST)
    made = table(["name", *(each for head in _DRAWN for each in ("", head))], right=_DRAWN)
    for row in rows[: max(height - _AROUND, 1)]:
        cells = [cell(clipped(shown_name(row.name), name))]
        for head, number in _DRAWN.items():
            if row.problem is None and (row.kind == QUEUE or head != "out/s"):
                cells.append(cell(sparkline(history.of(row, number), wide)))
                cells.append(cell(f"{getattr(row, number):,.0f}"))
            else:
                cells += [cell(clipped(row.problem or "", wide)), cell("")]
        made.add_row(*cells)
    title = f"shmq {namespace}  {time.strftime('%H:%M:%S')}  q: quit"
    return Group(Text(clipped(title, width)), made.as_rich())


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
