"""A plot that a command writes to a file: what it needs is checked before the work begins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from shmq.cli.shared.extra import check_extra
from shmq.cli.shared.output import one_line

_SUFFIXES: Final = (".png", ".svg", ".pdf")


@contextlib.contextmanager
def drawn_to(path: Path | None, figure: Callable[[Path], None]) -> Iterator[None]:
    """Call ``figure`` with the path at the end of the block, unless the path is None.

    Raises ShmqError without matplotlib, ClickException without a folder, and BadParameter for an
    unknown format, before the block.
    """
    if path is not None:
        _check(path)
    yield
    if path is not None:
        try:
            figure(path)
        except OSError as error:
            raise click.ClickException(f"cannot write {str(path)!r}: {error.strerror}") from error


def _check(path: Path) -> None:
    check_extra("--plot", "plot", ("matplotlib",))
    if path.suffix not in _SUFFIXES:
        raise click.BadParameter(
            one_line(f"{path}: the name must end in {', '.join(_SUFFIXES)}"), param_hint="'--plot'"
        )
    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"cannot write {str(path)!r}: the folder does not exist")
