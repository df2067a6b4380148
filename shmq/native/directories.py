"""Directories that only their user may enter, or that the users of a group share.

A shared directory is the group's, with mode 2770: set-group-ID, so that what is created in it is
the group's, too. `open_file` gives files in such a directory mode 0660.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from pathlib import Path

_SHARED = 0o2770
#: What acl(5) says of new files, in place of the umask: rwx for the user and the group, nothing for
#: others. SQLite creates files without `open_file`.
_ACL = "system.posix_acl_default"
_ALL_ALIKE = struct.pack("<I" + 3 * "HHI", 2, 1, 7, 2**32 - 1, 4, 7, 2**32 - 1, 32, 0, 2**32 - 1)
_SHM = "/dev/shm"


def make_directory(path: Path, gid: int | None = None) -> list[Path]:
    """Create a directory and its missing parents, mode 0700 whatever the umask; return the new.

    With a ``gid`` they are shared by that group. Existing ones stay as is. Raises OSError;
    NotADirectoryError for a file of that name.
    """
    missing = [at for at in (path, *path.parents) if not at.exists()]
    for at in reversed(missing):
        if gid is not None:
            make_shared(at, gid)
            continue
        try:
            at.mkdir(mode=0o700)
        except FileExistsError:  # another process has just created it
            continue
        at.chmod(0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a directory: name another one")
    return missing


def make_shared(path: Path, gid: int) -> None:
    """Create a directory that the group shares, unless there is one. Raises OSError.

    It gets its name last, so that nobody finds it with another mode. An empty one of that name,
    which another process has just made, is replaced: what is in it is named by the path.
    """
    unfinished = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    unfinished.mkdir(mode=0o700)
    try:
        os.chown(unfinished, -1, gid)
        unfinished.chmod(_SHARED)
        with contextlib.suppress(OSError):  # the file system has no ACLs
            os.setxattr(unfinished, _ACL, _ALL_ALIKE)
        unfinished.rename(path)
    except OSError as error:
        unfinished.rmdir()
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY} and not path.is_dir():
            raise


def is_of_group(status: os.stat_result, gid: int) -> bool:
    """Whether the group shares the directory, or the file is the group's and closed to others."""
    mode = stat.S_IMODE(status.st_mode)
    is_theirs = mode == _SHARED if stat.S_ISDIR(status.st_mode) else not mode & 0o007
    return status.st_gid == gid and is_theirs


def is_shared(directory: str) -> bool:
    """Whether a group shares the directory. Raises OSError."""
    return directory != _SHM and stat.S_IMODE(os.stat(directory).st_mode) == _SHARED


def new_file_mode(path: str) -> int:
    """The mode of a new file there: 0660 in a directory that a group shares, else 0600."""
    return 0o660 if is_shared(folder_of(path)) else 0o600


def folder_of(path: str) -> str:
    """The directory that the file is in."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else os.curdir)
