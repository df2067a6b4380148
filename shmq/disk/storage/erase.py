"""Removes the files of deleted queues and streams, so that they stay removed.

After a power cut any subset of the removals may have reached the disk, and half of a queue's
files is not an earlier state of it. So a note is written and synced first, and a process that
finds a note completes the removal. The note has the hash keys of the deleted queues, so that files
of a new queue of that name are left alone.

Of a stream the metadata file is removed first, and that is synced: a directory without one is not a
stream, and a recovery that finds it removes the rest.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal

from shmq.disk.storage.disk import Disk, read_whole, remove_file, sync_file, write_whole
from shmq.disk.storage.file_header import hash_key_of
from shmq.disk.storage.paths import (
    CARD,
    STREAMS,
    SUFFIX,
    Files,
    catalog,
    stream_directory,
    streams_among,
)

log = logging.getLogger("shmq")

_NOTE: Final = re.compile(r"\.(?P<queue>[^@]+)\.dmsq\.gone", re.ASCII)
_KEY: Final = struct.Struct("<Q")


def erasure_note(queue: str) -> str:
    """The name of the note that the queue's files have to be removed."""
    return f".{queue}{SUFFIX}.gone"


def is_left(disk: Disk, files: Files) -> bool:
    """Whether any of the queue's files has a hash key that its note does not have."""
    erased = _read_note(disk, erasure_note(files.queue))
    return any(hash_key_of(disk, name) not in {None, *erased} for name in files.names())


def erase_queue(disk: Disk, queue: str, hash_key: int | None = None, *, last: bool = True) -> bool:
    """Remove the files of the queue, durably; return whether there were any.

    Only the files with ``hash_key``, if given. Unless this is the ``last`` call, the note stays
    for the queue's writer, which may be creating a file just now, and calls this afterwards.
    Raises OSError; then the files still exist, or the note does.
    """
    files = catalog(disk.names()).get(queue)
    if files is None and erasure_note(queue) not in disk.names():
        return False
    found = (hash_key_of(disk, name) for name in (files.names() if files else ()))
    keys = {key for key in found if key is not None and hash_key in {None, key}}
    _write_note(disk, queue, keys)
    _remove(disk, queue, keys, last=last)
    return True


def _write_note(disk: Disk, queue: str, keys: Collection[int]) -> None:
    """Add the keys to the queue's note."""
    try:
        file, before = disk.create(erasure_note(queue)), 0
    except FileExistsError:
        file = disk.open(erasure_note(queue))
        before = disk.size(file) // _KEY.size * _KEY.size
    try:
        write_whole(disk, file, [b"".join(_KEY.pack(key) for key in sorted(keys))], before)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.sync_directory()


def finish_erasures(disk: Disk) -> list[str]:
    """Complete every noted removal; returns the names of those queues. Raises OSError."""
    notes = [match for match in map(_NOTE.fullmatch, disk.names()) if match is not None]
    erased = {match["queue"]: _read_note(disk, match[0]) for match in notes}
    if erased:
        disk.sync_directory()
    for queue, keys in erased.items():
        _remove(disk, queue, keys, last=True)
    return [*erased]


def _read_note(disk: Disk, name: str) -> set[int]:
    """The keys in a note, which is synced first: its writer may have died before that."""
    sync_file(disk, name)
    raw = read_whole(disk, name)
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
        remove_file(disk, erasure_note(queue))


def erase_stream(disk: Disk, name: str, identity: int) -> bool:
    """Remove the stream's files, durably; return whether there were any. Raises OSError.

    ``disk`` is the data directory. If a writer adds files in the meantime, some may remain,
    without a metadata file; the writer then calls this again.
    """
    own = disk.under(stream_directory(name, identity))
    if not own.exists():
        return False
    with contextlib.suppress(FileNotFoundError):
        own.unlink(CARD)
    with contextlib.suppress(FileNotFoundError):  # its writer has just removed all of it
        own.sync_directory()
    for entry in own.names():
        _remove_entry(own, entry)
    _remove_directory(own)
    disk.under(STREAMS).sync_directory()
    return True


def sweep_streams(disk: Disk, keep: set[tuple[str, int]]) -> list[str]:
    """Remove leftovers of streams without a metadata file, except those in ``keep``.

    Returns their names. What cannot be removed is logged: it is no stream, and harms none. Raises
    OSError if the directory cannot be read.
    """
    swept = []
    for name, identity in streams_among(disk.under(STREAMS).names()):
        if (name, identity) not in keep and not is_carded(disk, name, identity):
            try:
                erase_stream(disk, name, identity)
            except OSError as error:
                path = disk.path(stream_directory(name, identity))
                log.error("%s, of a deleted stream, cannot be removed: %s", path, error.strerror)
            else:
                swept.append(name)
    return swept


def is_carded(disk: Disk, name: str, identity: int) -> bool:
    """Whether the stream's directory has a metadata file."""
    return CARD in disk.under(stream_directory(name, identity)).names()


def _remove_entry(own: Disk, entry: str) -> None:
    """Remove a file of the stream, or a partition with its files."""
    below = own.under(entry)
    try:
        for name in below.names():
            with contextlib.suppress(FileNotFoundError):
                below.unlink(name)
    except NotADirectoryError:
        with contextlib.suppress(FileNotFoundError):
            own.unlink(entry)
        return
    _remove_directory(below)


def _remove_directory(directory: Disk) -> None:
    """Remove it, unless a writer has added files to it, and so will remove it itself."""
    try:
        directory.remove()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise


def erase_stored(directory: Path, kind: Literal["queue", "stream"], name: str) -> None:
    """Remove the files of that name, which is not in memory, durably. Raises OSError.

    Needs the registry lock. Files with damaged headers are removed, too.
    """
    disk = Disk(directory)
    if kind == "stream":
        for stream, identity in streams_among(disk.under(STREAMS).names()):
            if stream == name:
                erase_stream(disk, name, identity)
        return
    erase_queue(disk, name)
    left = catalog(disk.names()).get(name)
    for file in left.names() if left is not None else ():
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(file)
    disk.sync_directory()
