"""The files that are set aside in a data directory: no process reads or removes them.

A queue's files that were set aside together are one item: ``NAME.dmsq.ID`` and
``NAME@*.dmsq.ID``, with the same number at the end. For streams these are
``streams/NAME.ID.aside``, a whole directory, and below a stream's own directory ``FILE.damaged``
and ``FILE.astray``, segments that it no longer uses. For the namespace they are
``writer.exchanges.aside``, ``writer.schemas.aside`` and ``writer.txn.damaged.1``. If a name was
taken, ``.2`` and so on is appended.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import (
    EXCHANGES,
    SCHEMAS,
    STREAMS,
    catalog,
    free_name,
    stream_directory,
    streams_among,
)
from shmq.disk.storage.transaction_file import TRANSACTIONS

AsideKind = Literal["queue", "stream", "segment", "definitions", "transactions"]

_NUMBER: Final = r"(?:\.(?P<number>[1-9]\d{0,8}))?"
_QUEUE: Final = re.compile(
    r"(?P<file>.+\.dmsq(?:\.tmp)?)\.(?P<identity>[0-9a-f]{16})" + _NUMBER, re.ASCII
)
_STREAM: Final = re.compile(r"(?P<stream>[^@/]+\.[0-9a-f]{16})\.aside" + _NUMBER, re.ASCII)
_SEGMENT: Final = re.compile(r".+\.dmsq\.(?P<what>damaged|astray)" + _NUMBER, re.ASCII)
_DEFINITIONS: Final = re.compile(
    rf"(?P<file>{re.escape(EXCHANGES)}|{re.escape(SCHEMAS)})\.aside{_NUMBER}", re.ASCII
)
_TRANSACTIONS: Final = re.compile(rf"{re.escape(TRANSACTIONS)}\.damaged{_NUMBER}", re.ASCII)

_MADE_WAY: Final = "another queue or stream of its name, or another history of it, replaced it"
_NOT_USED: Final = "it could not be read at a start, or others were in use"
_WHY_SEGMENT: Final = {
    "damaged": "it is damaged: the stream has its intact records",
    "astray": "its records do not connect to those with which the stream continued",
}


@dataclass(frozen=True, slots=True)
class FileSetAside:
    """An item that is set aside."""

    #: What it belongs to. ``segment``: a file that its stream no longer uses.
    kind: AsideKind
    #: The queue or stream; or the name of the original file.
    name: str
    #: Its path, and those of all its files, below the data directory; a stream's directory is one.
    file: str
    files: tuple[str, ...]
    bytes: int
    #: When it was last written, in seconds since 1970.
    written: float
    #: Why it was set aside.
    why: str
    #: The former names of its files, by their present names; empty if nothing can be restored.
    before: Mapping[str, str]

    @property
    def restorable(self) -> bool:
        """Whether anything of it can be restored."""
        return bool(self.before)


class RenamedDisk(Disk):
    """The files of a directory under their former names, only for reading."""

    def __init__(self, directory: Path, before: Mapping[str, str]) -> None:
        super().__init__(directory)
        self._now = {old: now for now, old in before.items()}

    def names(self) -> list[str]:
        """The former names, sorted."""
        return sorted(self._now)

    def path(self, name: str) -> Path:
        """The present path of the file."""
        return self.directory / self._now.get(name, name)


def rename_aside(disk: Disk, name: str, ending: str) -> str:
    """Rename a file or a directory durably, by appending that ending; returns the new name."""
    there = free_name(f"{name}.{ending}", disk.names())
    disk.rename(name, there)
    disk.sync_directory()
    return there


def files_aside(directory: Path) -> list[FileSetAside]:
    """The items set aside there, by kind and name; none without the directory. Raises OSError."""
    disk = Disk(directory)
    found = [*_list_queues(disk), *_list_definitions(disk), *_list_streams(disk)]
    return sorted(found, key=lambda one: (one.kind, one.name, one.file))


def _list_queues(disk: Disk) -> Iterator[FileSetAside]:
    lives: dict[tuple[str, str, int], dict[str, str]] = {}
    for name in disk.names():
        match = _QUEUE.fullmatch(name)
        if match is None:
            continue
        for queue in catalog([match["file"]]):
            life = lives.setdefault((queue, match["identity"], int(match["number"] or 1)), {})
            life[name] = match["file"]
    for (queue, _, _), before in lives.items():
        files = [name for name, old in before.items() if not old.endswith(".tmp")]
        why = _MADE_WAY if files else "it is a snapshot that was never finished"
        yield from _describe(disk, "queue", queue, files or [*before], why, before if files else {})


def _list_definitions(disk: Disk) -> Iterator[FileSetAside]:
    for name in disk.names():
        if (match := _DEFINITIONS.fullmatch(name)) is not None:
            why, old = _NOT_USED, match["file"]
            yield from _describe(disk, "definitions", old, [name], why, {name: old})
        elif _TRANSACTIONS.fullmatch(name) is not None:
            why = "it is damaged: its intact transactions were completed"
            yield from _describe(disk, "transactions", TRANSACTIONS, [name], why, {})


def _list_streams(disk: Disk) -> Iterator[FileSetAside]:
    there = disk.under(STREAMS).names()
    for entry in there:
        if (match := _STREAM.fullmatch(entry)) is not None:
            ((name, _),) = streams_among([match["stream"]])
            file = f"{STREAMS}/{entry}"
            before = {file: f"{STREAMS}/{match['stream']}"}
            yield from _describe(disk, "stream", name, [file], _MADE_WAY, before)
    for name, identity in streams_among(there):
        own = stream_directory(name, identity)
        partitions = [entry for entry in disk.under(own).names() if entry.isdecimal()]
        for partition in sorted(partitions, key=int):
            below = f"{own}/{partition}"
            for file in disk.under(below).names():
                if (match := _SEGMENT.fullmatch(file)) is not None:
                    why = _WHY_SEGMENT[match["what"]]
                    yield from _describe(disk, "segment", name, [f"{below}/{file}"], why, {})


def _describe(
    disk: Disk,
    kind: AsideKind,
    name: str,
    files: Sequence[str],
    why: str,
    before: Mapping[str, str],
) -> Iterator[FileSetAside]:
    """One item, unless it has been removed by now."""
    with contextlib.suppress(FileNotFoundError):
        states = [path.stat() for file in files for path in _list_below(disk.path(file))]
        size, written = sum(one.st_size for one in states), max(one.st_mtime for one in states)
        every = tuple(before) or tuple(files)
        yield FileSetAside(kind, name, files[0], every, size, written, why, before)


def _list_below(path: Path) -> list[Path]:
    """The file; or the files of a directory, at any depth, or the directory if it has none."""
    if not path.is_dir():
        return [path]
    return [one for one in path.rglob("*") if one.is_file()] or [path]
