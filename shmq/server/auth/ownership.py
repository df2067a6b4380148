"""Checks the owner and the mode of a server's configuration files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from shmq.errors import InvalidOption

__all__ = ["check_file"]


def check_file(status: os.stat_result, path: Path, what: str, *, secrets: str | None) -> None:
    """Refuse a file of another user, one that others may write, or ``secrets`` they may read.

    ``what`` names the file in the error, ``secrets`` what others must not read; None: anyone
    may read it. Raises :class:`~shmq.InvalidOption`, with the mode and what to do.
    """
    user = os.geteuid()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in {user, 0}:
        raise InvalidOption(
            f"{what} belongs to user {status.st_uid}, neither to user {user} nor to root: "
            f"chown {user} {path} and chmod 600 {path}"
        )
    if mode & 0o022:
        raise InvalidOption(f"{what} has mode {mode:04o}, so others may write it: chmod 600 {path}")
    if secrets is not None and mode & 0o077:
        raise InvalidOption(
            f"{what} has mode {mode:04o}, so others may read {secrets}: chmod 600 {path}"
        )
