"""Writes a manual page for each command: ``python -m tools.release.manual FOLDER``."""

from __future__ import annotations

import datetime as dt
import os
import sys
from pathlib import Path

from click_man.core import write_man_pages

import shmq
from shmq.cli.main import cli

__all__ = ["main"]


def main(folder: Path) -> None:
    """Write ``shmq.1``, ``shmq-produce.1`` and so on, dated by ``SOURCE_DATE_EPOCH``."""
    folder.mkdir(parents=True, exist_ok=True)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = dt.datetime.now(dt.UTC)
    day = dt.datetime.fromtimestamp(int(epoch), dt.UTC) if epoch else now
    write_man_pages(
        "shmq",
        cli,
        version=shmq.__version__,
        target_dir=str(folder),
        date=f"{day:%Y-%m-%d}",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
