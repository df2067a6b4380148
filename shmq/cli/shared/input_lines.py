"""Lines of standard input or a file, in the batches in which they arrive."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator

import click

import shmq

__all__ = ["InputLines", "open_lines", "progress"]

_CHUNK = 1 << 16


class InputLines:
    """The lines of a file, without their newlines.

    Iterating gives lists of lines: those that could be had without waiting, so that
    a slow writer's line is not held back.
    """

    def __init__(self, file: io.RawIOBase, name: str, longest: int) -> None:
        self._file = file
        self._longest = longest
        #: The name of the file for errors.
        self.name = name
        #: The size of the file in bytes, if it has one.
        self.size = _size(file)
        #: Whether the lines are typed on a terminal.
        self.typed = file.isatty()
        #: How many bytes have been read.
        self.read = 0

    def __iter__(self) -> Iterator[list[bytes]]:
        """Raises :class:`click.ClickException`, and MessageTooLarge where no line ends.

        Memory is bounded by that: by ``longest`` bytes and a chunk.
        """
        with self._file:
            yield from self._batches()

    def _batches(self) -> Iterator[list[bytes]]:
        begun: list[bytes] = []
        held, number = 0, 1
        while chunk := self._read():
            first, *rest = chunk.split(b"\n")
            begun.append(first)
            held += len(first)
            if rest:
                yield [b"".join(begun), *rest[:-1]]
                begun, held, number = [rest[-1]], len(rest[-1]), number + len(rest)
            if held > self._longest:
                raise shmq.MessageTooLarge(
                    f"{self.place(number)} has over {self._longest} bytes, more than the queue "
                    f"takes: shorten it, or make the queue with a larger --max-message-bytes"
                )
        if held:
            yield [b"".join(begun)]

    def place(self, number: int) -> str:
        """Where line ``number`` stands, the first one being 1."""
        return f"line {number} of {self.name}"

    def _read(self) -> bytes:
        try:
            chunk: bytes = self._file.read(_CHUNK) or b""
        except OSError as error:
            raise _unreadable(self.name, error) from error
        self.read += len(chunk)
        return chunk


def open_lines(path: str | None, longest: int) -> InputLines:
    """The lines of the file ``path``; of standard input if it is None or ``-``.

    Raises :class:`click.ClickException` where there is nothing to read.
    """
    if path is None or path == "-":
        if sys.stdin is None:
            raise click.UsageError("standard input is closed: give -m TEXT or --file FILE")
        return InputLines(io.FileIO(sys.stdin.fileno(), closefd=False), "standard input", longest)
    try:
        return InputLines(io.FileIO(path), repr(path), longest)
    except OSError as error:
        raise _unreadable(repr(path), error) from error


def _unreadable(name: str, error: OSError) -> click.ClickException:
    return click.ClickException(
        f"cannot read {name}: {error.strerror}; give a file of lines, or - for standard input"
    )


def _size(file: io.RawIOBase) -> int | None:
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextlib.contextmanager
def progress(lines: InputLines) -> Iterator[Callable[[int], None]]:
    """Show how far ``lines`` were read, and the count that the yielded function is given."""
    if lines.typed or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - on a terminal alone
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[count]:,} messages"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %" if lines.size else ""),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with shown:
        task = shown.add_task(lines.name, total=lines.size or None, count=0)
        yield lambda count: shown.update(task, completed=lines.read, count=count)
