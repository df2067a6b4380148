"""Descriptors 0, 1 and 2 belong to the program: no file, lock or socket of shmq is one of them.

The kernel assigns the lowest free number. In a program that has closed its stderr, a segment
opened without this module would be descriptor 2, and receive whatever is printed later.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final

from shmq.native._core import reserve_standard

_FIRST_OF_OURS: Final = 3


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a file like `os.open`, as a descriptor above 2 that executed programs do not inherit.

    A file that it creates has exactly the ``mode``, whatever the umask; an existing one keeps its
    own.
    """
    reserve_standard()
    flags |= os.O_CLOEXEC
    fd = _create_file(path, flags, mode) if flags & os.O_CREAT else os.open(path, flags)
    if fd >= _FIRST_OF_OURS:
        return fd
    try:  # another thread has just closed a standard descriptor, or /dev/null is missing
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_OF_OURS)
    finally:
        os.close(fd)


def _create_file(path: str | os.PathLike[str], flags: int, mode: int) -> int:
    """Open the file; if it is new, set its mode."""
    try:
        fd = os.open(path, flags | os.O_EXCL, mode)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags, mode)
    try:
        os.fchmod(fd, mode)
    except OSError:
        os.close(fd)
        raise
    return fd


def fill_standard() -> None:
    """Open /dev/null as those of descriptors 0, 1 and 2 that are closed.

    For processes that run only shmq: unlike the placeholders of `reserve_standard`, these can be
    read and written, and executed programs inherit them. Raises OSError.
    """
    for standard in range(_FIRST_OF_OURS):
        if not _is_usable(standard):
            _open_null(standard)


def _is_usable(fd: int) -> bool:
    """Whether the descriptor is open, and not a placeholder."""
    try:
        return not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH
    except OSError:
        return False


def _open_null(standard: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null == standard:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, standard)
        os.close(null)
