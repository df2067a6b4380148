"""The display of a running job: a live panel on a terminal, else a line a second."""

from __future__ import annotations

import abc
import dataclasses
import time
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import shmq

__all__ = ["LiveScreen", "PlainScreen", "Progress", "Screen", "screen_for"]

#: Seconds between two plain lines.
PLAIN_EVERY: Final = 1.0


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


def screen_for(console: Console) -> Screen:
    """The live panel if the console is a terminal that can move its cursor."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveScreen(console)
    return PlainScreen(console)


class LiveScreen(Screen):
    """A panel that is redrawn in place, with the events above it."""

    def __init__(self, console: Console) -> None:
        # The job redraws the panel, not a thread, so the job decides when that happens.
        self._live = Live(console=console, auto_refresh=False)

    def show(self, progress: Progress) -> None:
        """Redraw the panel."""
        self._live.update(_panel(progress), refresh=True)

    def event(self, line: str) -> None:
        """Print the line above the panel."""
        self._live.console.print(Text(line, style="bold red"))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()


class PlainScreen(Screen):
    """A line every :data:`PLAIN_EVERY` seconds, and one at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = time.monotonic() + PLAIN_EVERY

    def show(self, progress: Progress) -> None:
        """Print the line if one is due or the job is finished."""
        now = time.monotonic()
        if now >= self._next or progress.finished:
            self._next = now + PLAIN_EVERY
            self._console.print(_line(progress), soft_wrap=True, highlight=False)

    def event(self, line: str) -> None:
        """Print the line."""
        self._console.print(line, soft_wrap=True, highlight=False)


def _line(progress: Progress) -> str:
    stats = progress.stats
    return (
        f"{progress.counted:,} of {progress.total:,} counted, depth {stats.depth:,}, "
        f"in flight {stats.in_flight:,}, in {stats.rate_in:,.0f}/s, out {stats.rate_out:,.0f}/s, "
        f"delivered again {progress.again:,}, consumers {progress.consumers}"
    )


def _panel(progress: Progress) -> RenderableType:
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
    panel.add_row(f"{progress.counted:,} of {progress.total:,} flights counted")
    panel.add_row(ProgressBar(progress.total, progress.counted, width=72))
    panel.add_row(numbers)
    return panel
