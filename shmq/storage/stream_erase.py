"""Removes the files of a deleted stream, so that they stay removed.

Its metadata file is removed first, and that is synced: a directory without one is no stream, and
a recovery that finds it removes the rest.
"""

from __future__ import annotations

import contextlib
import errno

from shmq.storage.disk import Disk
from shmq.storage.stream_paths import CARD, STREAMS, stream_directory, streams_among

__all__ = ["erase_stream", "is_carded", "sweep_streams"]


def erase_stream(disk: Disk, name: str, identity: int) -> bool:
    """Remove the stream's files, durably; return whether there were any. Raises OSError.

    ``disk`` is the data directory. If a writer adds files meanwhile, some may stay behind,
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
        _remove(own, entry)
    _remove_directory(own)
    disk.under(STREAMS).sync_directory()
    return True


def sweep_streams(disk: Disk, keep: set[tuple[str, int]]) -> list[str]:
    """Remove leftovers of streams without a metadata file, except those in ``keep``.

    Returns their names. Raises OSError.
    """
    swept = []
    for name, identity in streams_among(disk.under(STREAMS).names()):
        if (name, identity) not in keep and not is_carded(disk, name, identity):
            erase_stream(disk, name, identity)
            swept.append(name)
    return swept


def is_carded(disk: Disk, name: str, identity: int) -> bool:
    """Whether the stream's directory has a metadata file."""
    return CARD in disk.under(stream_directory(name, identity)).names()


def _remove(own: Disk, entry: str) -> None:
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
