"""The folder of a namespace's files: /dev/shm, or for the users of a group one in it.

The files of ``GROUP/NAME`` are in ``/dev/shm/shmq.GROUP``, which is the group's, with mode 2770:
/dev/shm is sticky, so that no user could remove or replace a file of another one there. What is
created in the folder belongs to the group, with mode 0660: see `shmq.native.directories`.
The first process that uses it makes it under another name, and it stays until the next reboot.

The names of the files do not have the group: `file_prefix` is the same for ``NAME``.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from shmq.api.names import SHM, group_of, name_in_group
from shmq.errors import ForeignSegment, InvalidOption, descriptors
from shmq.lazy_imports import late_imports
from shmq.native.directories import is_of_group, make_shared

#: What the folders are named, before the group's name.
_PREFIX: Final = "shmq."

#: The folders that this process has checked, with the group's id.
_gids: Final[dict[Path, int]] = {}


def folder_of(namespace: str) -> Path:
    """The folder with the namespace's files."""
    group = group_of(namespace)
    return SHM if group is None else SHM / f"{_PREFIX}{group}"


def file_prefix(namespace: str, kind: str) -> str:
    """What the names of the namespace's files of that kind begin with: ``KIND.shmq@NAME``."""
    return f"{kind}shmq@{name_in_group(namespace)}"


def file_path(namespace: str, kind: str, rest: str = "") -> Path:
    """The path of the namespace's file of that kind."""
    return folder_of(namespace) / f"{file_prefix(namespace, kind)}{rest}"


def list_folder(namespace: str) -> list[str]:
    """The names of all files in the namespace's folder. Raises OSError."""
    with descriptors:
        return os.listdir(folder_of(namespace))


def group_folders() -> list[tuple[str, Path]]:
    """The groups that have a folder which this user may use, with the folder, sorted."""
    found = []
    for entry in sorted(os.listdir(SHM)):
        group = entry.removeprefix(_PREFIX)
        if group != entry:
            with contextlib.suppress(ForeignSegment, InvalidOption, OSError):
                _check(group, SHM / entry)
                found.append((group, SHM / entry))
    return found


def shared_gid(namespace: str) -> int | None:
    """The id of the group whose users share the namespace; None: it is of one user.

    Raises :class:`~shmq.InvalidOption` for an unknown group.
    """
    group = group_of(namespace)
    return None if group is None else _gids.get(folder_of(namespace)) or _look_up(group)


def gid_of_file(path: str | os.PathLike[str]) -> int | None:
    """The id of the group whose files are in the path's folder; None: they are of one user."""
    return _gids.get(Path(path).parent)


def ready_folder(namespace: str) -> None:
    """Check the namespace's folder, and make it if there is none.

    Raises :class:`~shmq.InvalidOption` for an unknown group, and
    :class:`~shmq.ForeignSegment` for a user who is not in it, and a folder that is not the group's.
    """
    group = group_of(namespace)
    if group is None:
        return
    path = folder_of(namespace)
    try:
        try:
            _check(group, path)
        except FileNotFoundError:
            gid = _look_up(group)
            _refuse_outsider(group, gid, path)
            make_shared(path, gid)
            _check(group, path)
    except OSError as error:
        raise ForeignSegment(
            f"{path}, the folder of group {group!r}, cannot be made: {error.strerror or error}"
        ) from error


def _check(group: str, path: Path) -> None:
    """Check the folder of the group. Raises FileNotFoundError and what `ready_folder` raises.

    Only a user of the group, or root, can have given it to the group.
    """
    status = os.lstat(path)
    gid = _look_up(group)
    if not stat.S_ISDIR(status.st_mode) or not is_of_group(status, gid):
        raise ForeignSegment(
            f"{path} is not the folder of group {group!r} ({gid}): its owner is user "
            f"{status.st_uid}, its group {status.st_gid}, and its mode "
            f"{stat.S_IMODE(status.st_mode):04o}, not 2770; let root remove it"
        )
    _refuse_outsider(group, gid, path)
    _gids[path] = gid


def _refuse_outsider(group: str, gid: int, path: Path) -> None:
    user = os.geteuid()
    if user and gid != os.getegid() and gid not in os.getgroups():
        name = user_name(user)
        raise ForeignSegment(
            f"user {name} is not in group {group!r}, whose users share {path}: let root add "
            f"them (usermod -aG {group} {name}), and log in again or restart the service"
        )


def user_name(user: int) -> str:
    """The name of the user of that id; the id in decimal if it has none."""
    with late_imports:
        import pwd  # noqa: PLC0415 - for groups of users alone

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _look_up(group: str) -> int:
    with late_imports:
        import grp  # noqa: PLC0415 - for groups of users alone

        from shmq.suggestions import suggest  # noqa: PLC0415

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        hint = suggest(group, (known.gr_name for known in grp.getgrall()), "")
        raise InvalidOption(
            f"this host has no group {group!r}: {hint or f'let root add it (groupadd {group})'}"
        ) from None
