"""``shmq top``: what every queue and stream of a namespace is doing, drawn again and again."""

from __future__ import annotations

import collections
import dataclasses
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

import shmq
from shmq.cli.shared import params
from shmq.cli.shared.flags import connected, json_flag
from shmq.cli.shared.names import KINDS, QUEUE, kinds_flag
from shmq.cli.shared.output import counted, note, one_line, show_json, show_table
from shmq.cli.top_screen import ORDERS, Row, clipped, draw, look, ordered
from shmq.supervision.signals import Stop

__all__ = ["Keyboard", "top"]

#: The shortest time between two frames, in seconds.
_LEAST_INTERVAL = 0.05
#: The lines around the rows: the title, and what the table has above and below them.
_AROUND = 5


@click.command(epilog="Example: shmq top --sort depth")
@click.option(
    "--interval",
    type=params.seconds,
    default="1s",
    metavar="TIME",
    show_default=True,
    help="The time between two updates.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(ORDERS)),
    default="name",
    show_default=True,
    help="Sort by this column, the largest value first.",
)
@click.option("--once", is_flag=True, help="Print once and end; the default without a terminal.")
@kinds_flag
@json_flag
@click.pass_context
@connected
def top(
    broker: shmq.Broker,
    context: click.Context,
    interval: float,
    order: str,
    once: bool,
    kinds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what every queue and stream is doing, until q is pressed.

    The columns are depth, age of the oldest message, messages in flight, rates, dead letters
    and attached processes. The key s sorts by the next column.
    """
    if interval < _LEAST_INTERVAL:
        raise click.BadParameter(
            f"{interval:g} s is less than {_LEAST_INTERVAL:g} s", param_hint="'--interval'"
        )
    if as_json:
        show_json([dataclasses.asdict(row) for row in ordered(look(broker, kinds), order)])
    elif once or not _can_be_redrawn():
        _print(broker, order, kinds)
    else:
        context.exit(_redraw(broker, interval, order, kinds))


def _can_be_redrawn() -> bool:
    console = Console()
    return sys.stdout.isatty() and not console.is_dumb_terminal


def _print(broker: shmq.Broker, order: str, kinds: Sequence[str]) -> None:
    rows = ordered(look(broker, kinds), order)
    sound = [row for row in rows if row.problem is None]
    if sound:
        width = Console().width if sys.stdout.isatty() else None
        show_table(draw(sound, width))
    for row in rows:
        if row.problem is not None or row.unkept is not None:
            note(f"{row.name}: {row.problem or row.unkept}")
    if not rows:
        note(f"namespace {broker.namespace!r} has no queues")


def _redraw(broker: shmq.Broker, interval: float, order: str, kinds: Sequence[str]) -> int:
    """Draw until a key or a signal says so; the exit code."""
    console = Console(emoji=False, markup=False, highlight=False)
    orders = list(ORDERS)
    with Stop() as stop, Keyboard() as keys:
        try:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                key = ""
                while key not in {"q", "Q"}:
                    if key == "s":
                        order = orders[(orders.index(order) + 1) % len(orders)]
                    rows = ordered(look(broker, kinds), order)
                    live.update(_frame(broker.namespace, rows, order, console), refresh=True)
                    with stop.interruptible():
                        key = keys.wait(interval)
        except KeyboardInterrupt:
            pass
    # Ctrl-C is a way to leave.
    return 128 + stop.signal if stop.signal not in {0, signal.SIGINT} else 0


def _frame(namespace: str, rows: list[Row], order: str, console: Console) -> Group:
    """All that the screen shows, cut to its size."""
    width, height = console.size
    sound = [row for row in rows if row.problem is None]
    told = {row.name: row.problem or row.unkept for row in rows}
    wrong = [f"{name}: {problem}" for name, problem in told.items() if problem is not None]
    lines = wrong[: height // 3]
    room = height - _AROUND - len(lines)
    if len(sound) > room:
        room = max(room - 1, 1)
        lines.insert(0, f"{len(sound) - room} more: a taller window shows them")
    title = (
        f"shmq {namespace}  {time.strftime('%H:%M:%S')}  {_counts(rows)}  "
        f"by {order}  s: sort  q: leave"
    )
    return Group(
        Text(clipped(title, width)),
        draw(sound[:room], width),
        *(Text(clipped(one_line(line), width)) for line in lines),
    )


def _counts(rows: Sequence[Row]) -> str:
    """``3 queues``, and how many of the others there are, if there are any."""
    every = collections.Counter(row.kind for row in rows)
    kinds = [kind for kind in KINDS if every[kind] or kind == QUEUE]
    return ", ".join(counted(every[kind], kind) for kind in kinds)


class Keyboard:
    """While it is entered, the terminal gives keys one by one and does not echo them.

    Where standard input is no terminal there are none. Ctrl-C remains a signal.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._before: list[Any] = []

    def wait(self, seconds: float) -> str:
        """The next key, or "" if none was pressed in that time."""
        if self._fd < 0:
            time.sleep(seconds)
            return ""
        if not select.select([self._fd], [], [], seconds)[0]:
            return ""
        pressed = os.read(self._fd, 1)
        if not pressed:  # the terminal is gone
            self._fd = -1
        return pressed.decode("latin-1")

    def __enter__(self) -> Self:
        if sys.stdin is not None and sys.stdin.isatty():
            fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(fd)
            tty.setcbreak(fd)
            self._fd = fd
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
