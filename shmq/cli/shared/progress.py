"""How far a long step is: a bar on a terminal, elsewhere a line on stderr now and then."""

from __future__ import annotations

import collections
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

from shmq.cli.shared.output import age, amount, note
from shmq.disk.storage.progress import Report

#: What ends sooner shows nothing, in seconds.
DELAY: Final = 2.0
#: The time between two lines without a terminal, in seconds.
PAUSE: Final = 5.0
#: The time between two pictures of a bar, in seconds.
_FRAME: Final = 0.2
#: The time between two questions how far a step is, in seconds.
_ASK: Final = 0.5
#: The rate is that of the last so many seconds, from samples of which each lasts so many.
_WINDOW: Final = 30.0
_SAMPLE: Final = 0.2
#: Before this part is done, nobody knows how long the rest takes.
_FORESEEN: Final = 0.01

#: Within it, a function gives what is done and the total.
Asked: TypeAlias = Callable[[], contextlib.AbstractContextManager[Callable[[], tuple[int, int]]]]


class Pace:
    """How quickly a number grows, from its last half minute.

    rich has the bar; its rate is that up to the last update, which a step that has stopped would
    show forever, and needs its import also where lines are written without a terminal.
    """

    def __init__(self, now: float) -> None:
        self.done: float = 0
        self._seen = collections.deque([(now, 0.0)])

    def saw(self, now: float, done: float) -> None:
        """The number is ``done`` now; a smaller one than before starts again."""
        if done < self.done:
            self._seen.clear()
        if not self._seen or now - self._seen[-1][0] >= _SAMPLE:
            self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW:
            self._seen.popleft()
        self.done = done

    def rate(self, now: float) -> float:
        """How much it grew in a second."""
        since, before = self._seen[0]
        return (self.done - before) / max(now - since, 1e-3)

    def left(self, now: float, total: float) -> float | None:
        """In how many seconds it is ``total``; None if nobody knows."""
        rate = self.rate(now)
        return max(total - self.done, 0) / rate if rate > 0 else None


class _Picture(Protocol):
    """Where progress is drawn."""

    #: The time between two drawings, in seconds.
    pause: float

    def draw(self, line: str, done: float, total: float | None) -> None: ...
    def close(self) -> None: ...


class Progress:
    """Called with how much is done, it shows that where and when it is due."""

    def __init__(self, what: str, unit: str, picture: _Picture | None) -> None:
        self._what, self._unit, self._picture = what, unit, picture
        self._began = time.monotonic()
        self._due = self._began + DELAY
        self._lock = threading.RLock()
        self._pace = Pace(self._began)
        self._total: float | None = None
        self._text = ""

    def __call__(
        self, done: float, total: float | None = None, *, what: str = "", text: str = ""
    ) -> None:
        """So much is done, of ``total`` if that is known.

        ``what`` names the step from now on; another step starts again. ``text`` comes before the
        numbers.
        """
        with self._lock:
            now = time.monotonic()
            if what and what != self._what:
                self._what, self._pace = what, Pace(now)
            self._pace.saw(now, done)
            self._total, self._text = total or None, text
        self.tick()

    def tick(self) -> None:
        """Draw, if that is due."""
        with self._lock:
            now = time.monotonic()
            if self._picture is not None and now >= self._due:
                self._due = now + self._picture.pause
                self._picture.draw(self._format_line(now), self._pace.done, self._total)

    def close(self) -> None:
        """Remove what is drawn, and draw nothing from now on."""
        with self._lock:
            if self._picture is not None:
                self._picture.close()
            self._picture = None

    def _format_line(self, now: float) -> str:
        """``backup: 1.2 GiB of 4.0 GiB, 30 %, 200.0 MiB/s, 14 s left``."""
        done, total = self._pace.done, self._total
        parts = [*([self._text] if self._text else []), *self._format_numbers(now)]
        if total is not None:
            parts.append(f"{min(done / total, 1):.0%}".replace("%", " %"))
            known = done >= total * _FORESEEN
            left = self._pace.left(now, total) if known else None
            parts += [] if left is None else [f"{_format_time(left)} left"]
        return f"{self._what}: {', '.join(parts)}"

    def _format_numbers(self, now: float) -> Iterator[str]:
        done, total = self._pace.done, self._total
        if not self._unit:
            return
        if not done and total is None:
            yield f"{_format_time(now - self._began)} so far"
            return
        of = "" if total is None else f" of {self._format(total)}"
        yield f"{self._format(done)}{of}" + ("" if self._unit == "bytes" else f" {self._unit}")
        rate = self._pace.rate(now)
        if rate >= 1:
            yield f"{self._format(rate)}/s"

    def _format(self, number: float) -> str:
        return amount(int(number)) if self._unit == "bytes" else f"{int(number):,}"


def steps_of(shown: Progress) -> Report:
    """The function that shows the steps that a lower layer reports."""
    return lambda step, done, total: shown(done, total, what=step)


@contextlib.contextmanager
def progress(
    what: str,
    unit: str,
    *,
    quiet: bool = False,
    lines: bool = True,
    forks: bool = False,
    asked: Asked | None = None,
) -> Iterator[Progress]:
    """Show how far the block is, which calls what this yields; nothing for a short one.

    Without a ``unit`` no numbers are shown. ``quiet``: show nothing. ``lines``: also without a
    terminal. A thread draws while the block does not call, but not if it ``forks``. A block
    that cannot report its progress has ``asked``, which the thread calls.
    """
    shown = Progress(what, unit, None if quiet else _picture(lines=lines))
    over = threading.Event()
    drawing = threading.Thread(target=_draw, args=(shown, over, asked), daemon=True)
    if not forks and not quiet:
        drawing.start()
    try:
        yield shown
    finally:
        over.set()
        shown.close()


def _draw(shown: Progress, over: threading.Event, asked: Asked | None) -> None:
    """Draw again and again until it is over."""
    if over.wait(DELAY):
        return
    if asked is not None:
        # What cannot be asked has no numbers: the step itself says what is wrong.
        with contextlib.suppress(Exception), asked() as ask:
            while not over.wait(_ASK):
                shown(*ask())
    while not over.wait(_FRAME):
        shown.tick()


def _format_time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else age(seconds)


def _picture(*, lines: bool) -> _Picture | None:
    if sys.stderr is None:
        return None
    if sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 - on a terminal alone

        console = Console(stderr=True)
        if not console.is_dumb_terminal:
            return _Bar(console)
    return _Lines() if lines else None


class _Lines:
    """A line on stderr each time."""

    pause = PAUSE

    def draw(self, line: str, done: float, total: float | None) -> None:  # noqa: ARG002 - a picture's
        note(line)

    def close(self) -> None:
        """Nothing has to be removed."""


class _Bar:
    """A bar under what else is written to stderr; it pulses while the total is unknown."""

    pause = _FRAME

    def __init__(self, console: Any) -> None:
        self._console = console
        self._bar: Any = None
        self._began = time.monotonic()
        self._moved: list[logging.StreamHandler[Any]] = []

    def draw(self, line: str, done: float, total: float | None) -> None:
        if self._bar is None:
            self._bar = self._start(line)
        self._bar.update(0, description=line, completed=done, total=total, refresh=True)

    def close(self) -> None:
        if self._bar is not None:
            for handler in self._moved:
                handler.setStream(self._console.file)
            self._bar.stop()

    def _start(self, line: str) -> Any:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - on a terminal alone
        from rich.progress import Progress as Bar  # noqa: PLC0415

        made = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
        )
        made.add_task(line, total=None)
        made.tasks[0].start_time = self._began
        before = sys.stderr
        made.start()
        for handler in logging.getLogger("shmq").handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(sys.stderr)  # which writes above the bar
                self._moved.append(handler)
        return made
