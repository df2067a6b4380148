"""What a log of the disk consists of: one noun for each thing that was done to it."""

from __future__ import annotations

from dataclasses import dataclass

#: A file keeps its number whatever it is called, as an inode does.
File = int


@dataclass(frozen=True)
class MakeDirectory:
    path: str


@dataclass(frozen=True)
class Create:
    """A new and empty file under a name; what had the name before is an unlinked file."""

    path: str
    file: File


@dataclass(frozen=True)
class Write:
    file: File
    offset: int
    data: bytes


@dataclass(frozen=True)
class Allocate:
    """The file is at least that long from now on; what was not written reads as zeros."""

    file: File
    size: int


@dataclass(frozen=True)
class Truncate:
    """The file is exactly that long; what is behind the end is gone."""

    file: File
    size: int


@dataclass(frozen=True)
class Sync:
    """fsync or fdatasync; ``failed`` if it returned an error."""

    file: File
    failed: bool = False


@dataclass(frozen=True)
class Rename:
    path: str
    to: str


@dataclass(frozen=True)
class Unlink:
    path: str


@dataclass(frozen=True)
class SyncDirectory:
    path: str
    failed: bool = False


Event = (
    MakeDirectory | Create | Write | Allocate | Truncate | Sync | Rename | Unlink | SyncDirectory
)
