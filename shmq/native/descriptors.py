"""Descriptors 0, 1 and 2 belong to the program: no file, lock or socket of shmq is one of them.

The kernel assigns the lowest free number. In a program that has closed its stderr, a segment
opened without this module would be descriptor 2, and receive whatever is printed later.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from shmq.native._core import reserve_standard
from shmq.native.directories import folder_of, new_file_mode

_FIRST_OF_OURS: Final = 3
#: The mode of a file of one user.
_PRIVATE: Final = 0o600
#: What open(2) says where a file system has no files without names.
_NO_TMPFILE: Final = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT}


def open_file(path: str | os.PathLike[str], flags: int, mode: int | None = None) -> int:
    """Open a file like `os.open`, as a descriptor above 2 that executed programs do not inherit.

    A file that it creates has exactly the ``mode``, whatever the umask; None: 0600, or 0660 in a
    directory that a group shares. An existing one keeps its own.
    """
    reserve_standard()
    flags |= os.O_CLOEXEC
    fd = _create_file(os.fspath(path), flags, mode) if flags & os.O_CREAT else os.open(path, flags)
    if fd >= _FIRST_OF_OURS:
        return fd
    try:  # another thread has just closed a standard descriptor, or /dev/null is missing
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_OF_OURS)
    finally:
        os.close(fd)


def _create_file(path: str, flags: int, mode: int | None) -> int:
    """Open the file; if it is new, set its mode."""
    if mode is None:
        mode = new_file_mode(path)
    if mode & 0o077:
        return _create_shared(path, flags, mode)
    try:
        fd = os.open(path, flags | os.O_EXCL, mode)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags, mode)
    return _set_mode(fd, mode)


def _create_shared(path: str, flags: int, mode: int) -> int:
    """The same of a file that others may open at once: it gets its name with its mode."""
    while True:
        if not flags & os.O_EXCL:
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, flags & ~os.O_CREAT | os.O_NOFOLLOW)
        try:
            return _name_new(path, flags & ~(os.O_CREAT | os.O_EXCL), mode)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise


def _name_new(path: str, flags: int, mode: int) -> int:
    """Create the file without a name, or where that cannot be, with another one; then name it."""
    directory = folder_of(path)
    try:
        fd = _set_mode(os.open(directory, flags & ~os.O_NOFOLLOW | os.O_TMPFILE, _PRIVATE), mode)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        unfinished = f"{directory}/.{os.urandom(8).hex()}.tmp"
        fd = _set_mode(os.open(unfinished, flags | os.O_CREAT | os.O_EXCL, _PRIVATE), mode)
    else:
        unfinished = f"/proc/self/fd/{fd}"
    try:
        # With any src_dir_fd it is linkat(2), which follows the link to the file without a name.
        os.link(unfinished, path, src_dir_fd=fd)
    except BaseException:
        os.close(fd)
        raise
    finally:
        if not unfinished.startswith("/proc/"):
            Path(unfinished).unlink()
    return fd


def _set_mode(fd: int, mode: int) -> int:
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
