"""Writes a manual page for each command: ``python -m tools.release.manual FOLDER``."""

from __future__ import annotations

import datetime as dt
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click_man.core import write_man_pages

import shmq
from shmq.cli.main import cli


def main(folder: Path) -> None:
    """Write ``shmq.1``, ``shmq-produce.1`` and so on, dated by ``SOURCE_DATE_EPOCH``."""
    folder.mkdir(parents=True, exist_ok=True)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = dt.datetime.now(dt.UTC)
    day = dt.datetime.fromtimestamp(int(epoch), dt.UTC) if epoch else now
    before = [(command, command.short_help) for command in _commands(cli)]
    for command, short in before:
        command.short_help = short or _sentence(command.help or "")  # else click cuts it off
    try:
        write_man_pages(
            "shmq", cli, version=shmq.__version__, target_dir=str(folder), date=f"{day:%Y-%m-%d}"
        )
    finally:
        for command, short in before:
            command.short_help = short


def _commands(command: click.Command) -> Iterator[click.Command]:
    """The command, and all that are in it."""
    yield command
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _commands(each)


def _sentence(text: str) -> str:
    """The first sentence, on one line and without its point."""
    first = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"\.(?: |$)", first)[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
