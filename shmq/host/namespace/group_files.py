"""The files of a stream's groups in /dev/shm: ``group.shmq@NAMESPACE@STREAM_ID@GROUP``.

Their names have the stream's id, in hexadecimal, and not its name: a new stream of an old name has
none of the old one's groups, even if those were not removed. A file is created under the registry
lock; its version, stored last, distinguishes it from one whose creator died.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import re
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, Final

from shmq.api.names import check_name
from shmq.errors import (
    DamagedSegment,
    ForeignSegment,
    InvalidOption,
    SegmentError,
    ShmqError,
    StreamDeleted,
)
from shmq.host.namespace.folder import file_prefix
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.shm_files import as_foreign, as_no_space, new_identity, refuse_foreign
from shmq.native import _clock as time
from shmq.native import _group
from shmq.native._core import MAX_NAME
from shmq.native.descriptors import open_file

log = logging.getLogger("shmq.groups")

#: The part of a file's name after the namespace: the stream's id, and the group.
_OWN: Final = re.compile(rf"([0-9a-f]{{16}})@([A-Za-z0-9._:-]{{1,{MAX_NAME}}})", re.ASCII)


def open_or_make(
    namespace: Namespace,
    stream: str,
    stream_id: int,
    name: str,
    options: dict[str, Any],
    check: Callable[[], None] = lambda: None,
) -> _group.GroupState:
    """The group of that name, created with these options if there is none.

    The option ``created_at``, in ns since 1970, is the present time by default. ``check`` is
    called before one is created, under the registry lock, and raises if none may be. Raises
    :class:`~shmq.InvalidOption` if the group has another assignment; other differences do not
    matter. Raises InvalidName, NoSpace and SegmentError.
    """
    check_name(name, "group")
    group_state = look_at(namespace, stream_id, name)
    if group_state is None:
        with namespace.locked():
            group_state = look_at(namespace, stream_id, name)
            if group_state is None:
                check()
                group_state = _make(namespace, stream_id, name, options)
    found = group_state.options["assignment"]
    if found != options["assignment"] and found == "shared":
        raise InvalidOption(
            f"group {name!r} of stream {stream!r} is a share group, which has no offsets: use "
            f"share(), or another name"
        )
    if found != options["assignment"]:
        raise InvalidOption(
            f"group {name!r} of stream {stream!r} is of assignment {found!r}, not "
            f"{options['assignment']!r}: use that one, or another name"
        )
    return group_state


def look_at(namespace: Namespace, stream_id: int, name: str) -> _group.GroupState | None:
    """The group of that name, or None if there is none, or an unfinished one.

    Raises SegmentError.
    """
    path = _make_path(namespace, stream_id, name)
    try:
        fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise as_foreign(error, path) from error
    try:
        refuse_foreign(fd, path)
        size = os.fstat(fd).st_size
        if not size:
            return None
        memory = mmap.mmap(fd, size)
    finally:
        os.close(fd)
    try:
        group_state = _group.GroupState(
            memory, f"the group {name!r} ({path})", namespace.processes.own
        )
    except BlockingIOError:
        return None
    if group_state.options["stream_id"] != stream_id:
        raise DamagedSegment(f"{path} is of another stream than its name says: delete it")
    return None if group_state.deleted else group_state


def _make(
    namespace: Namespace, stream_id: int, name: str, options: dict[str, Any]
) -> _group.GroupState:
    """Create the group, replacing one whose creator died. Needs the registry lock."""
    path = _make_path(namespace, stream_id, name)
    path.unlink(missing_ok=True)
    namespace.note(path, there=True)
    options = {
        "created_at": time.time_ns(),
        **options,
        "group_id": new_identity(),
        "stream_id": stream_id,
    }
    size = _group.size_of(options)
    if not size:
        raise InvalidOption(f"a group cannot be made with {options}: a value is out of range")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = -1
    try:
        fd = open_file(path, flags)
        os.posix_fallocate(fd, 0, size)
        memory = mmap.mmap(fd, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        namespace.note(path, there=False)
        raise as_no_space(error, size) from error
    finally:
        if fd >= 0:
            os.close(fd)
    _group.make(memory, options)
    return _group.GroupState(memory, f"the group {name!r} ({path})", namespace.processes.own)


def group_names(namespace: Namespace, stream_id: int) -> list[str]:
    """The names of the stream's groups, sorted; some may be half created or half removed."""
    own = f"{stream_id:016x}@"
    return [name.removeprefix(own) for name in namespace.names_of("group.shmq", own)]


def remove(namespace: Namespace, stream_id: int, name: str) -> bool:
    """Delete a group, whatever its state; return whether there was one.

    Its members get :class:`~shmq.StreamDeleted` from then on.
    """
    path = _make_path(namespace, stream_id, name)
    with namespace.locked():
        with contextlib.suppress(SegmentError, StreamDeleted):
            group_state = look_at(namespace, stream_id, name)
            if group_state is not None:
                group_state.close()
        try:
            path.unlink()
            namespace.note(path, there=False)
        except FileNotFoundError:
            namespace.note(path, there=False)
            return False
        except OSError as error:
            if error.errno == errno.EISDIR:
                raise ForeignSegment(f"{path} is a directory, and no group: remove it") from error
            if error.errno in {errno.EACCES, errno.EPERM}:
                raise ShmqError(f"{path} cannot be removed: {error.strerror}") from error
            raise
    return True


def remove_all(namespace: Namespace, stream_id: int) -> None:
    """Delete all groups of a stream."""
    for name in group_names(namespace, stream_id):
        remove(namespace, stream_id, name)


def sweep(namespace: Namespace, stream_ids: Container[int]) -> None:
    """Delete the groups of all streams except these. Needs the registry lock.

    A failed removal is logged, and files without the name of a group are left alone.
    """
    for entry in namespace.names_of("group.shmq"):
        found = _OWN.fullmatch(entry)
        if found is not None and int(found[1], 16) not in stream_ids:
            try:
                remove(namespace, int(found[1], 16), found[2])
            except ShmqError as error:
                log.warning("group %s of a deleted stream cannot be removed: %s", entry, error)


def _make_prefix(namespace: Namespace, stream_id: int) -> str:
    return f"{file_prefix(namespace.name, 'group.')}@{stream_id:016x}@"


def _make_path(namespace: Namespace, stream_id: int, name: str) -> Path:
    return namespace.folder / f"{_make_prefix(namespace, stream_id)}{check_name(name, 'group')}"
