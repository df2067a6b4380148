"""The directory that ``format("dmsq")`` reads."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from shmq.errors import InvalidOption, NoSuchQueue, ShmqError
from shmq.storage.paths import SUFFIX, catalog
from shmq.storage.queue_reader import ReadOnly

__all__ = ["directory_of", "queues_in"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def directory_of(path: str | None) -> ReadOnly:
    """The directory at ``path``, which may be a ``file:`` URL.

    Raises :class:`~shmq.InvalidOption` if there is no readable directory.
    """
    if path is None:
        raise InvalidOption(
            "say which directory: .load(PATH), of a namespace's data directory or of a backup"
        )
    found = Path(_local(path)).absolute()
    if found.is_file():
        hint = f": load {str(found.parent)!r}, and name the queue with the option queue"
        raise InvalidOption(f"path={path!r} is a file, and not a directory of them{hint}")
    if not found.is_dir():
        raise InvalidOption(f"path={path!r} is no directory: name one with .dmsq files in it")
    return ReadOnly(found)


def queues_in(
    disk: ReadOnly, names: tuple[str, ...] | None, pattern: re.Pattern[str] | None
) -> tuple[str, ...]:
    """The queues to read: the named ones, those that match the pattern, or else all with files.

    Raises :class:`~shmq.NoSuchQueue` for a named queue without files, and if no queue has any.
    Raises :class:`~shmq.ShmqError` if the directory cannot be read.
    """
    try:
        found = [
            name
            for name, files in catalog([entry.name for entry in disk.directory.iterdir()]).items()
            if files.snapshot or files.segments
        ]
    except OSError as error:
        where = str(disk.directory)
        raise ShmqError(f"path={where!r} cannot be read: {error.strerror or error}") from None
    if not found:
        raise NoSuchQueue(f"there are no files of queues, NAME{SUFFIX}, in {disk.directory}")
    if names is None:
        return tuple(name for name in found if pattern is None or pattern.fullmatch(name))
    for name in names:
        if name not in found:
            near = difflib.get_close_matches(name, found, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise NoSuchQueue(f"there are no files of queue {name!r} in {disk.directory}{hint}")
    return names


def _local(path: str) -> str:
    if not _SCHEME.match(path):
        return path
    url = urlsplit(path)
    if url.scheme.lower() != "file" or url.netloc not in {"", "localhost"}:
        raise InvalidOption(
            f"path={path!r}: queues' files are read from directories of the hosts that Spark "
            f"runs on: mount it there, or copy it"
        )
    return unquote(url.path)
