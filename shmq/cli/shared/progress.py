"""The progress bar of a long produce: on stderr, and only on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from shmq.cli.shared.input_lines import Lines

__all__ = ["progress"]


@contextlib.contextmanager
def progress(lines: Lines) -> Iterator[Callable[[int], None]]:
    """Show how far ``lines`` were read, and the count that the yielded function is given."""
    if lines.typed or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
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
