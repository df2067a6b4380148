"""Removes the files of a deleted queue, so that they stay removed.

After a power cut any subset of the removals may have reached the disk, and half of a queue's
files is no earlier state of it. So a note is written and synced first, and a process that finds a
note completes the removal. The note has the hash keys of the deleted queues, so that files of a
new queue of that name are left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Final

from shmq.storage.disk import Disk
from shmq.storage.paths import SUFFIX, Files, catalog
from shmq.storage.write_fully import write_whole

__all__ = ["LOCK", "erase", "finish", "hash_key_of", "is_left", "is_written", "note", "writer_of"]

#: The name of the file that the directory's writer holds locked with flock(2).
LOCK: Final = "writer.lock"

_NOTE: Final = re.compile(r"\.(?P<queue>[^@]+)\.dmsq\.gone", re.ASCII)
#: Parts of a file's header: the magic, 20 bytes, and the hash key.
_HEADER: Final = struct.Struct("<4s20xQ")
_KEY: Final = struct.Struct("<Q")


def is_written(directory: Path) -> bool:
    """Whether a process writes there now."""
    try:
        lock = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def writer_of(directory: Path) -> int:
    """The process id that the directory's writer has noted; 0: none can be read."""
    try:
        told = (directory / LOCK).read_text("ascii")
    except (OSError, ValueError):
        return 0
    found = re.search(r"^pid (\d{1,18})$", told, re.MULTILINE | re.ASCII)
    return int(found[1]) if found else 0


def note(queue: str) -> str:
    """The name of the note that the queue's files have to be removed."""
    return f".{queue}{SUFFIX}.gone"


def is_left(disk: Disk, files: Files) -> bool:
    """Whether any of the queue's files has a hash key that its note does not have."""
    told = _told(disk, note(files.queue))
    return any(hash_key_of(disk, name) not in {None, *told} for name in files.names())


def hash_key_of(disk: Disk, name: str) -> int | None:
    """The hash key in the file's header; None if it has none, or is gone."""
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return None
    try:
        raw = disk.read(file, _HEADER.size, 0)
    finally:
        disk.close(file)
    if len(raw) < _HEADER.size:
        return None
    magic, key = _HEADER.unpack(raw)
    return int(key) if magic == b"DMSQ" else None


def erase(disk: Disk, queue: str, hash_key: int | None = None, *, last: bool = True) -> bool:
    """Remove the files of the queue, durably; return whether there were any.

    Only the files with ``hash_key``, if given. Unless this is the ``last`` call, the note stays
    for the queue's writer, which may be creating a file just now, and calls this afterwards.
    Raises OSError; then the files still exist, or the note does.
    """
    files = catalog(disk.names()).get(queue)
    if files is None and note(queue) not in disk.names():
        return False
    found = (hash_key_of(disk, name) for name in (files.names() if files else ()))
    keys = {key for key in found if key is not None and hash_key in {None, key}}
    _write_note(disk, queue, keys)
    _remove(disk, queue, keys, last=last)
    return True


def _write_note(disk: Disk, queue: str, keys: Collection[int]) -> None:
    """Add the keys to the queue's note."""
    try:
        file, before = disk.create(note(queue)), 0
    except FileExistsError:
        file = disk.open(note(queue))
        before = disk.size(file) // _KEY.size * _KEY.size
    try:
        write_whole(disk, file, [b"".join(_KEY.pack(key) for key in sorted(keys))], before)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.sync_directory()


def finish(disk: Disk) -> list[str]:
    """Complete every noted removal; returns the names of those queues. Raises OSError."""
    notes = [match for match in map(_NOTE.fullmatch, disk.names()) if match is not None]
    told = {match["queue"]: _told(disk, match[0]) for match in notes}
    if told:
        disk.sync_directory()
    for queue, keys in told.items():
        _remove(disk, queue, keys, last=True)
    return [*told]


def _told(disk: Disk, name: str) -> set[int]:
    """The keys in a note, which is synced first: its writer may have died before that."""
    file = disk.open(name)
    try:
        disk.sync(file)
        raw = disk.read(file, disk.size(file), 0)
    finally:
        disk.close(file)
    whole = len(raw) // _KEY.size * _KEY.size
    return {key for (key,) in _KEY.iter_unpack(raw[:whole])}


def _remove(disk: Disk, queue: str, keys: Collection[int], *, last: bool) -> None:
    files = catalog(disk.names()).get(queue)
    for name in files.names() if files else ():
        with contextlib.suppress(FileNotFoundError):
            if hash_key_of(disk, name) in keys:
                disk.unlink(name)
    disk.sync_directory()
    if last:
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(note(queue))
        disk.sync_directory()
