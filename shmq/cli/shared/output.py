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
from typing import TYPE_CHECKING, Any

import click

from shmq.api.names import shown_name
from shmq.errors import DurabilityWarning

# Rich is loaded with the first table: most commands print lines.
if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

#: The width of a table without a terminal.
_UNBOUNDED = 100_000


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
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        side = "right" if column in right else "left"
        made.add_column(column, justify=side, no_wrap=True)  # type: ignore[arg-type]
    return made


def show_table(made: Table) -> None:
    """Print a table: as wide as the terminal, or unwrapped where there is none."""
    from rich.console import Console  # noqa: PLC0415

    terminal = on_a_terminal()
    if not terminal:
        made.box = None
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=None if terminal else _UNBOUNDED,
        emoji=False,
        markup=False,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(made)
    show("\n".join(line.rstrip() for line in captured.get().splitlines()))


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


def cell(value: object) -> Text:
    """A table's cell with ``value`` as is: no markup, no control characters."""
    from rich.text import Text  # noqa: PLC0415

    return Text(one_line(str(value)))


def lines(*texts: str) -> Text:
    """A table's cell with a line for each text that is not empty; the first is the main one."""
    from rich.text import Text  # noqa: PLC0415

    first, *rest = (one_line(text) for text in texts)
    return Text("\n").join([Text(first), *(Text(text, style="dim") for text in rest if text)])


def name_cell(name: str) -> Text:
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
