"""Files in /dev/shm: whether one is this user's own, and the errors of creating one."""

from __future__ import annotations

import errno
import os
import stat

from shmq.api.names import SHM
from shmq.errors import ForeignSegment, NoSpace, no_descriptor
from shmq.host.namespace.folder import gid_of_file
from shmq.native.directories import is_of_group


def new_identity() -> int:
    """A unique number: 62 random bits and a 1."""
    return int.from_bytes(os.urandom(8)) >> 1 | 1


def refuse_foreign(fd: int, path: str | os.PathLike[str]) -> None:
    """Raises ForeignSegment unless the file is this user's, and closed to others.

    In the folder of a group it may be any user's, if it is the group's and closed to others.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ForeignSegment(f"{path} is not a regular file: remove it")
    if is_own(status):
        return
    gid = gid_of_file(path)
    if gid is not None:
        refuse_outside(status, path, gid)
    elif status.st_uid != os.geteuid():
        raise ForeignSegment(
            f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}: "
            f"use a namespace of your own, or share one of a group (GROUP/NAME)"
        )
    else:
        raise ForeignSegment(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o}, so others may touch it: "
            f"set it to 0600 if it is yours"
        )


def is_own(status: os.stat_result) -> bool:
    """Whether it is this user's, and closed to others."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def refuse_outside(status: os.stat_result, path: str | os.PathLike[str], gid: int) -> None:
    """Raises ForeignSegment unless it is the group's, and closed to others."""
    if not is_of_group(status, gid):
        raise ForeignSegment(
            f"{path} has group {status.st_gid} and mode {stat.S_IMODE(status.st_mode):04o}: what "
            f"users of group {gid} share is the group's, and closed to others; remove it"
        )


def as_foreign(error: OSError, path: str | os.PathLike[str]) -> Exception:
    """The error as ForeignSegment, if the file is another user's; else as `no_descriptor`."""
    if error.errno in {errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR, errno.ENXIO}:
        return ForeignSegment(
            f"{path} belongs to another user: {error.strerror}; use another namespace"
        )
    return no_descriptor(error)


def as_no_file(error: OSError, path: str | os.PathLike[str]) -> Exception:
    """The error of a failed creation; NoSpace means inodes: an empty file takes no bytes."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NoSpace(
            f"no file can be created in {SHM}: {error.strerror}, all inodes are used; "
            f"delete queues, or mount it with more inodes"
        )
    return as_foreign(error, path)


def as_no_space(error: OSError, wanted: int) -> Exception:
    """The error as NoSpace, if it is for lack of space; else as `no_descriptor`."""
    if isinstance(error, NoSpace) or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        return no_descriptor(error)
    space = os.statvfs(SHM)
    full = "/dev/shm is full" if error.errno == errno.ENOSPC else "your quota of /dev/shm is full"
    return NoSpace(
        f"{full}: {wanted} bytes wanted, {space.f_bavail * space.f_frsize} available; "
        f"purge or delete queues, or give it more room (in a container: --shm-size)"
    )
