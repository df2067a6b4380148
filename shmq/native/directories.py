"""Directories that only their user may enter."""

from __future__ import annotations

import errno
from pathlib import Path


def make_directory(path: Path) -> list[Path]:
    """Create a directory and its missing parents, mode 0700 whatever the umask; return the new.

    Existing ones stay as is. Raises OSError; NotADirectoryError for a file of that name.
    """
    missing = [at for at in (path, *path.parents) if not at.exists()]
    for at in reversed(missing):
        try:
            at.mkdir(mode=0o700)
        except FileExistsError:  # another process has just created it
            continue
        at.chmod(0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a directory: name another one")
    return missing
