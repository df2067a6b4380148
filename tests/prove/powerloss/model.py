"""A disk that loses power: what it may hold after each step of a log.

The model knows nothing of shmq. It is meaner than any file system that it stands for:

- A sector of 512 bytes is written whole or not at all. Each sector that was written since
  the file's last sync holds any of the contents that it had since then, whatever became
  of the others: writes are lost, torn and reordered at will.
- A file is as long as it was at any time since its last sync. Where a write made it longer
  and its data are missing, there are zeros, or what a deleted file left there.
- A sync of a file says nothing of its name. Each name that was given or taken since the
  directory's last sync has been or has not been, each by itself. A rename may be half
  there: both names, or neither the old nor the new.
- After a sync that failed, what it should have written is in doubt for ever, also when a
  later sync of the same file succeeds: the kernel takes the pages for clean. Only what is
  written again is certain after the next sync. The same holds for names.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.prove.powerloss.events import (
    Allocate,
    Create,
    Event,
    File,
    MakeDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
)

SECTOR = 512
ZEROS = bytes(SECTOR)

#: What a name stands for if it is a directory.
DIRECTORY: File = 0


@dataclass
class Sector:
    """One that may hold several things.

    ``disk``: what may be on the disk, oldest first; ``cache``: what may be read back, of
    which the next sync will write.
    """

    disk: list[bytes]
    cache: list[bytes]
    at: int
    dirty: bool = True
    #: Never written and never allocated before: missing, it may show what was there before.
    fresh: bool = False

    @property
    def options(self) -> int:
        return len(self.disk)


@dataclass
class Content:
    """A file's bytes and length, certain and not."""

    stable: bytearray = field(default_factory=bytearray)
    sectors: dict[int, Sector] = field(default_factory=dict)
    size: int = 0
    sizes: list[int] = field(default_factory=lambda: [0])
    size_dirty: bool = False
    #: Up to here every byte was written and synced, or allocated.
    backed: int = 0

    def settled(self, index: int) -> bytes:
        found = bytes(self.stable[index * SECTOR : (index + 1) * SECTOR])
        return found.ljust(SECTOR, b"\0")

    def settle(self, index: int, content: bytes) -> None:
        end = (index + 1) * SECTOR
        if len(self.stable) < end:
            self.stable.extend(bytes(end - len(self.stable)))
        self.stable[index * SECTOR : end] = content

    def current(self) -> bytes:
        """What is read back now, if nothing is in doubt."""
        whole = bytearray(self.stable.ljust(self.size, b"\0"))
        for index, sector in self.sectors.items():
            whole[index * SECTOR : (index + 1) * SECTOR] = sector.cache[-1]
        return bytes(whole[: self.size])


@dataclass
class Entry:
    """One name, given to a file or taken away, and not known to be on the disk."""

    path: str
    file: File | None
    at: int
    doubtful: bool = False


class DiskModel:
    """What may be on the disk, after the events that it was told of in turn."""

    def __init__(self, directories: tuple[str, ...] = ("",)) -> None:
        self.contents: dict[File, Content] = {}
        #: The names that are certain, those that are not, and how they look now.
        self.names: dict[str, File] = dict.fromkeys(directories, DIRECTORY)
        self.entries: list[Entry] = []
        self.seen: dict[str, File] = dict(self.names)
        #: Sectors of deleted files, by number: they come back where nothing was written.
        self.stale: dict[int, bytes] = {}
        self.now = 0

    def apply(self, event: Event) -> None:
        """One more thing was done. Raises LookupError for a name or file that is not there."""
        self.now += 1
        match event:
            case MakeDirectory(path):
                self._give(path, DIRECTORY)
            case Create(path, file):
                self.contents[file] = Content()
                self._give(path, file)
            case Write(file, offset, data):
                self._write(self.contents[file], offset, data)
            case Allocate(file, size):
                self._resize(self.contents[file], max(size, self.contents[file].size))
                self.contents[file].backed = max(size, self.contents[file].backed)
            case Truncate(file, size):
                self._truncate(self.contents[file], size)
            case Sync(file, failed):
                self._sync(self.contents[file], failed=failed)
            case Rename(path, to):
                file = self.seen[path]
                self._give(to, file)
                self._take(path)
            case Unlink(path):
                self._take(path)
            case SyncDirectory(path, failed):
                self._sync_directory(path, failed=failed)

    # --- contents ---------------------------------------------------------------------

    def _write(self, content: Content, offset: int, data: bytes) -> None:
        end = offset + len(data)
        for index in range(offset // SECTOR, -(-end // SECTOR)):
            begin = index * SECTOR
            first, last = max(offset, begin), min(end, begin + SECTOR)
            self._write_sector(content, index, first - begin, data[first - offset : last - offset])
        self._resize(content, max(end, content.size))

    def _write_sector(self, content: Content, index: int, at: int, part: bytes) -> None:
        sector = content.sectors.get(index)
        if sector is None:
            before = content.settled(index)
            fresh = index * SECTOR >= max(content.backed, content.sizes[0])
            sector = Sector([before], [before], self.now, fresh=fresh)
            content.sectors[index] = sector
        changed = [old[:at] + part + old[at + len(part) :] for old in sector.cache]
        sector.cache = list(dict.fromkeys(changed))
        # A content that it had before is what it has last: its place is that of the newest.
        kept = [old for old in sector.disk if old not in sector.cache]
        sector.disk = kept + sector.cache
        sector.dirty = True

    def _resize(self, content: Content, size: int) -> None:
        if size != content.size:
            content.size = size
            content.size_dirty = True
            content.sizes = [old for old in content.sizes if old != size] + [size]

    def _truncate(self, content: Content, size: int) -> None:
        """Cut, or made longer by zeros. What is cut off may still be there, but reads as zeros."""
        tail = size % SECTOR
        for index in range(size // SECTOR, -(-content.size // SECTOR)):
            keep = tail if index == size // SECTOR else 0
            self._write_sector(content, index, keep, bytes(SECTOR - keep))
        self._resize(content, size)
        content.backed = min(content.backed, size)

    def _sync(self, content: Content, *, failed: bool) -> None:
        for index, sector in list(content.sectors.items()):
            if sector.dirty and not failed:
                sector.disk = list(sector.cache)
            elif sector.dirty:
                sector.cache = list(sector.disk)
            sector.dirty = False
            if len(sector.disk) == 1:
                content.settle(index, sector.disk[0])
                del content.sectors[index]
        if content.size_dirty and not failed:
            content.sizes = [content.size]
            content.backed = max(content.backed, content.size)
        content.size_dirty = False

    # --- names ------------------------------------------------------------------------

    def _give(self, path: str, file: File) -> None:
        self._forget(self.seen.get(path))
        self.seen[path] = file
        self.entries.append(Entry(path, file, self.now))

    def _take(self, path: str) -> None:
        self._forget(self.seen.pop(path))
        self.entries.append(Entry(path, None, self.now))

    def _forget(self, file: File | None) -> None:
        """A file may have lost its last name: what it held may show where nothing was written."""
        if file and list(self.seen.values()).count(file) <= 1:
            whole = self.contents[file].current()
            for index in range(len(whole) // SECTOR):
                part = whole[index * SECTOR : (index + 1) * SECTOR]
                if part != ZEROS:
                    self.stale[index] = part

    def _sync_directory(self, path: str, *, failed: bool) -> None:
        left: list[Entry] = []
        for entry in self.entries:
            if posixpath.dirname(entry.path) != path:
                left.append(entry)
            elif failed or entry.doubtful:
                entry.doubtful = True
                left.append(entry)
            else:
                left = [old for old in left if old.path != entry.path]
                self.names.pop(entry.path, None)
                if entry.file is not None:
                    self.names[entry.path] = entry.file
        self.entries = left

    def names_with(self, chosen: list[bool]) -> dict[str, File]:
        """The names if of the uncertain entries just those have been; orphans are left out."""
        names = dict(self.names)
        for entry, there in zip(self.entries, chosen, strict=True):
            if there and entry.file is not None:
                names[entry.path] = entry.file
            elif there:
                names.pop(entry.path, None)
        return {path: file for path, file in names.items() if _reachable(path, names)}


def _reachable(path: str, names: dict[str, File]) -> bool:
    return all(names.get(above) == DIRECTORY for above in _above(path))


def _above(path: str) -> Iterator[str]:
    while path:
        path = posixpath.dirname(path)
        yield path
