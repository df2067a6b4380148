"""How a command prints: text, tables and JSON to stdout, notes and warnings to stderr."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import click

from shmq.api.names import shown_name
from shmq.cli.shared.table import Cell, Table
from shmq.errors import DurabilityWarning

T = TypeVar("T")

#: On a terminal, of more rows than this only the `WORST` are shown, unless all are asked for.
MOST_ROWS: Final = 100
WORST: Final = 20


def show(line: str) -> None:
    """Print ``line`` to stdout.

    Raises :class:`click.ClickException` if it cannot be written, but BrokenPipeError
    if its reader has left.
    """
    try:
        click.echo(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"cannot write to standard output: {error.strerror}") from error


def show_json(value: Any) -> None:
    """Print ``value`` to stdout as one line of JSON, in ASCII."""
    show(json.dumps(value, allow_nan=False))


def note(line: str) -> None:
    """Print ``line`` to stderr, as one line after ``shmq:``."""
    # Not click.echo, which passes by a bar that moves down for what is written.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(f"shmq: {one_line(line)}\n")
            sys.stderr.flush()


class Warnings(logging.Handler):
    """Prints each warning of the library once, as a note."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record unless the same was printed before."""
        line = record.getMessage()
        if line not in self._said:
            self._said.add(line)
            note(line)


def note_durability_warnings() -> None:
    """Print a DurabilityWarning as a note from now on, without a place in the source."""
    others = warnings.showwarning

    def shown(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if issubclass(category, DurabilityWarning):
            note(str(message))
        else:
            others(message, category, *where)

    warnings.showwarning = shown  # type: ignore[assignment]


def table(columns: Sequence[str], *, right: Iterable[str] = (), title: str | None = None) -> Table:
    """An empty table; the columns in ``right`` are aligned to the right."""
    return Table(list(columns), set(right), title)


def show_table(made: Table) -> None:
    """Print a table: as wide as the terminal, or unwrapped where there is none."""
    if not on_a_terminal():
        show("\n".join(made.lines()))
        return
    from rich.console import Console  # noqa: PLC0415 - on a terminal alone

    console = Console(
        file=io.StringIO(), force_terminal=True, emoji=False, markup=False, highlight=False
    )
    with console.capture() as captured:
        console.print(made.as_rich())
    show("\n".join(line.rstrip() for line in captured.get().splitlines()))


def is_shortened(rows: int, every: bool) -> bool:
    """Whether so many rows are too many to be read, and nothing but a person reads them."""
    return rows > MOST_ROWS and not every and on_a_terminal()


def shorten(rows: Sequence[T], every: bool, noun: str) -> Sequence[T]:
    """The rows to show, the first ones if there are too many; a note says how to see all."""
    if not is_shortened(len(rows), every):
        return rows
    note(f"showing {WORST} of {counted(len(rows), noun)}: --all shows every one")
    return rows[:WORST]


def clock(seconds: float) -> str:
    """A moment, given in seconds since 1970, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def age(seconds: float) -> str:
    """A duration in the two largest units that matter."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def duration(seconds: float) -> str:
    """A short time in the unit that suits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def counted(number: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def amount(size: int) -> str:
    """A number of bytes in the largest unit that it fills."""
    number = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return counted(size, "byte") if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def cell(value: object) -> Cell:
    """A table's cell with ``value`` as is: no markup, no control characters."""
    return one_line(str(value))


def lines(*texts: str) -> Cell:
    """A table's cell with a line for each text that is not empty; the first is the main one."""
    first, *rest = (one_line(text) for text in texts)
    return first, *filter(None, rest)


def name_cell(name: str) -> Cell:
    """A table's cell with a name as it is shown."""
    return cell(shown_name(name))


def quoted(name: str) -> str:
    """A name in quotes, and in parentheses how it is shown, if that differs."""
    shown = shown_name(name)
    return repr(name) if shown == name else f"{name!r} ({shown!r})"


def also_shown(row: dict[str, Any], key: str = "name") -> dict[str, Any]:
    """A row of JSON with ``shown`` behind the name, if that is shown otherwise."""
    shown = shown_name(row[key])
    return row if shown == row[key] else {**row, "shown": shown}


def on_a_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def check_stdout(done: str) -> None:
    """Raises click.ClickException if standard output is closed; ``done``: what was not done."""
    if sys.stdout is None:
        raise click.ClickException(f"standard output is closed, so nothing was {done}: open it")


def printable(text: str, keep: str = "") -> str:
    """``text`` with every character escaped that is neither printable nor in ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def one_line(text: str) -> str:
    """``text`` on one line, escaped as by :func:`printable`."""
    return printable(" ".join(text.split()))
