"""The display of a running job: a live panel on a terminal, else a line every few seconds."""

from __future__ import annotations

import abc
import dataclasses
import time
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import shmq
from shmq.cli.shared.progress import PAUSE, Pace


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The job at one moment."""

    #: Flights counted, and their total.
    counted: int
    total: int
    #: Deliveries of flights that had been delivered before.
    again: int
    #: Consumers alive.
    consumers: int
    #: The queue of flights.
    stats: shmq.QueueStats
    #: Whether this is the last progress of the job.
    finished: bool = False


class Screen(abc.ABC):
    """A context manager that shows progress and events until it is left."""

    @abc.abstractmethod
    def show(self, progress: Progress) -> None:
        """Show the job's progress."""

    @abc.abstractmethod
    def event(self, line: str) -> None:
        """Print a permanent line about an event."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def screen_for(console: Console, *, quiet: bool = False) -> Screen:
    """The live panel if the console is a terminal that can move its cursor; events if quiet."""
    if quiet:
        return QuietScreen(console)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console)
    return PlainScreen(console)


class LiveScreen(Screen):
    """A panel that is redrawn in place, with the events above it."""

    def __init__(self, console: Console) -> None:
        # The job redraws the panel, not a thread, so the job decides when that happens.
        self._live = Live(console=console, auto_refresh=False)
        self._pace = Pace(time.monotonic())

    def show(self, progress: Progress) -> None:
        """Redraw the panel."""
        self._live.update(_panel(progress, _left(self._pace, progress)), refresh=True)

    def event(self, line: str) -> None:
        """Print the line above the panel."""
        self._live.console.print(Text(line, style="bold red"))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()


class QuietScreen(Screen):
    """The events alone."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, progress: Progress) -> None:
        """Show nothing."""

    def event(self, line: str) -> None:
        """Print the line."""
        self._console.print(line, soft_wrap=True, highlight=False)


class PlainScreen(QuietScreen):
    """A line every few seconds, and one at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._next = time.monotonic() + PAUSE
        self._pace = Pace(time.monotonic())

    def show(self, progress: Progress) -> None:
        """Print the line if one is due or the job is finished."""
        now = time.monotonic()
        left = _left(self._pace, progress)
        if now >= self._next or progress.finished:
            self._next = now + PAUSE
            self._console.print(_line(progress) + left, soft_wrap=True, highlight=False)


def _left(pace: Pace, progress: Progress) -> str:
    """``, 12 s left``; nothing while nobody knows, and at the end."""
    now = time.monotonic()
    pace.saw(now, progress.counted)
    left = pace.left(now, progress.total)
    return f", {left:.0f} s left" if left else ""


def _line(progress: Progress) -> str:
    stats = progress.stats
    return (
        f"{progress.counted:,} of {progress.total:,} counted, depth {stats.depth:,}, "
        f"in flight {stats.in_flight:,}, in {stats.rate_in:,.0f}/s, out {stats.rate_out:,.0f}/s, "
        f"delivered again {progress.again:,}, consumers {progress.consumers}"
    )


def _panel(progress: Progress, left: str) -> RenderableType:
    stats = progress.stats
    cells = {
        "depth": f"{stats.depth:,}",
        "in flight": f"{stats.in_flight:,}",
        "in": f"{stats.rate_in:,.0f}/s",
        "out": f"{stats.rate_out:,.0f}/s",
        "delivered again": f"{progress.again:,}",
        "consumers": str(progress.consumers),
    }
    numbers = Table(box=None, padding=(0, 1), header_style="dim")
    for title in cells:
        numbers.add_column(title, justify="right", min_width=9)
    numbers.add_row(*cells.values())
    panel = Table.grid()
    panel.add_row(f"{progress.counted:,} of {progress.total:,} flights counted{left}")
    panel.add_row(ProgressBar(progress.total, progress.counted, width=72))
    panel.add_row(numbers)
    return panel
