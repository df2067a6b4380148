"""The only access to the disk: one directory and the files in it.

The rest of this package touches files only through `Disk`, so that tests can replace it
with one that records or fails. It decides nothing and does not retry: a call is one system
call, except for `commit`, and raises OSError if that fails. `write_whole` repeats partial writes.

What a power cut leaves: of a file, any part of what was written since its last `sync`, with
zeros or the old bytes in between; of the directory, any subset of the creations, renames and
removals since its last `sync_directory`, each of them completely or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from shmq.errors import FileError
from shmq.native import _file
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file
from shmq.native.directories import is_of_group, is_shared, make_directory

#: writev(2) takes no more pieces than this in one call.
_PIECES: Final = 1024
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW


class Disk:
    """The files of one directory, by name. For any thread; a file is for one thread at a time.

    An open file is a descriptor, an int. Every call raises OSError.
    """

    #: The group whose users share the directory; None: it is this user's alone.
    gid: int | None = None
    #: Whether it was named by `under`: then it is shared if the directory above it is.
    _is_below = False

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def make(self) -> None:
        """Create the directory, mode 0700, and its parents, if they do not exist.

        What the users of a group share, and what is below it, is the group's, with mode 2770. Its
        name is synced even if it exists: its creator may have died before that. Raises
        NotADirectoryError for a file, and PermissionError for a directory of another user or
        another group, or one that others may enter.
        """
        path = self.directory.absolute()
        gid = self._find_group_above() if self._is_below else self.gid
        missing = self._make_directory(path, gid)
        for at in reversed(missing or [path]):
            _sync_directory(at.parent)
        status = self.directory.stat()
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        if gid is not None and not is_of_group(status, gid):
            raise PermissionError(
                f"{self.directory} is of group {status.st_gid} and has mode {mode}, and users of "
                f"group {gid} share it: make it theirs (chgrp {gid} and chmod 2770), or name "
                f"another directory"
            )
        if gid is None and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
            raise PermissionError(
                f"{self.directory} belongs to user {status.st_uid} and has mode {mode}, so others "
                f"may read what queues hold: "
                f"make it your own, with mode 0700, or name another directory"
            )

    def _find_group_above(self) -> int | None:
        """The group that shares the directory that this one is in, or will be."""
        above = next(at for at in self.directory.absolute().parents if at.exists())
        return above.stat().st_gid if is_shared(os.fspath(above)) else None

    def _make_directory(self, path: Path, gid: int | None) -> list[Path]:
        try:
            return make_directory(path, gid)
        except PermissionError as error:
            if gid is None:
                raise
            first = next(at for at in reversed((path, *path.parents)) if not at.exists())
            raise PermissionError(
                f"this user cannot make {first}: let root make it for the users of the group "
                f"(install -d -g {gid} -m 2770 {first}), or name another directory"
            ) from error

    def under(self, name: str) -> Disk:
        """A directory below this one, which need not exist yet: see `make`."""
        below = type(self)(self.directory / name)
        below._is_below = True
        return below

    def exists(self) -> bool:
        """Whether the directory exists."""
        return self.directory.is_dir()

    def remove(self) -> None:
        """Remove the directory, which must be empty. Its name is not synced."""
        self.directory.rmdir()

    def names(self) -> list[str]:
        """The names of all files, sorted; none if the directory does not exist."""
        try:
            return sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []

    def create(self, name: str) -> int:
        """Create and open a file of that name, mode 0600, or 0660 in a shared directory.

        Raises FileExistsError.
        """
        return open_file(self.path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS)

    def open(self, name: str) -> int:
        """Open the file of that name for reading and writing. Raises FileNotFoundError."""
        return open_file(self.path(name), os.O_RDWR | _FLAGS)

    def close(self, file: int) -> None:
        """Close the file. What was not synced may or may not reach the disk."""
        os.close(file)

    def size(self, file: int) -> int:
        """Its length in bytes."""
        return os.fstat(file).st_size

    def read(self, file: int, count: int, offset: int) -> bytes:
        """Up to ``count`` bytes from ``offset`` on; fewer at the end."""
        return os.pread(file, count, offset)

    def write(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Write the pieces one after the other; returns how many bytes, maybe not all."""
        return os.pwritev(file, pieces[:_PIECES], offset)

    def truncate(self, file: int, length: int) -> None:
        """Cut the file off after ``length`` bytes."""
        os.ftruncate(file, length)

    def sync(self, file: int) -> None:
        """Sync the file: what was written to it survives a power cut from here on.

        After a failure, nothing is known about what was written since the last success, and a
        later success does not change that.
        """
        os.fdatasync(file)

    def commit(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Write a few pieces one after the other, and sync the file; returns where they end.

        One call of the core, without the GIL. Raises FileNotFoundError if the file was removed:
        writes to it succeed, but are lost.
        """
        return _file.write_synced(file, list(pieces), offset)

    def push(self, file: int, offset: int, length: int) -> None:
        """Ask the kernel to write these bytes soon and drop them from the page cache; no wait.

        Linux starts writing bytes when it is advised that they will not be needed
        (posix_fadvise(2), POSIX_FADV_DONTNEED). It promises nothing.
        """
        os.posix_fadvise(file, offset, length, os.POSIX_FADV_DONTNEED)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file that has the new name."""
        self.path(old).rename(self.path(new))

    def unlink(self, name: str) -> None:
        """Remove the name. Raises FileNotFoundError."""
        self.path(name).unlink()

    def sync_directory(self) -> None:
        """Sync the directory: the files' names survive a power cut as they are now."""
        _sync_directory(self.directory)

    def path(self, name: str) -> Path:
        """The path of the file of that name, for callers that map it for reading."""
        return self.directory / name


class ReadOnly(Disk):
    """A directory whose files are only read, so they need not be writable."""

    def open(self, name: str) -> int:
        """Open the file of that name for reading. Raises FileNotFoundError."""
        return open_file(self.path(name), os.O_RDONLY | _FLAGS)


class AppendedFile:
    """The owner of an open file, to which only it appends."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file = -1

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._file >= 0

    def abandon(self) -> None:
        """Close the file as is."""
        if self._file >= 0:
            file, self._file = self._file, -1
            with contextlib.suppress(OSError):
                self._disk.close(file)


def _sync_directory(path: Path) -> None:
    directory = open_file(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


#: Bytes that are copied before writing them to disk is started.
_PUSHED: Final = 1 << 19
#: Bytes that are read at a time.
_PIECE: Final = 1 << 20
#: Bytes that a disk loses together.
_BLOCK: Final = 4096
#: madvise(2): read the mapped pages now. EFAULT: one of them cannot be read. Since Linux 5.14.
_MADV_POPULATE_READ: Final = 22


@contextlib.contextmanager
def opened(disk: Disk, name: str) -> Iterator[int]:
    """The open file of that name, for the block. Raises OSError, FileNotFoundError among them."""
    file = disk.open(name)
    try:
        yield file
    finally:
        disk.close(file)


def size_of(disk: Disk, name: str) -> int:
    """The length of the file of that name in bytes. Raises OSError."""
    with opened(disk, name) as file:
        return disk.size(file)


def read_whole(disk: Disk, name: str) -> bytes:
    """The bytes of the file of that name. Raises OSError."""
    with opened(disk, name) as file:
        return b"".join(read_pieces(disk, file, disk.size(file)))


def read_pieces(disk: Disk, file: int, size: int) -> Iterator[bytes]:
    """The first ``size`` bytes of the file, or all that it has, in pieces. Raises OSError."""
    at = 0
    while at < size and (piece := disk.read(file, min(_PIECE, size - at), at)):
        yield piece
        at += len(piece)


#: Of a file that no later try can read either: the disk has lost it, or it is no file.
LASTING: Final = frozenset({errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENXIO})
#: Of want of something, which says nothing of the file.
PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})


def unreadable(error: OSError, path: Path) -> FileError:
    """The error of a file that cannot be read; ``path``: where, if the ``error`` does not say."""
    return FileError(f"{error.filename or path} cannot be read: {error.strerror or error}")


def map_file(disk: Disk, name: str) -> mmap.mmap | bytes:
    """The bytes of the file, mapped, so that they are read from the disk on access.

    It must not be truncated while the mapping is used. Raises OSError. An access to bytes that the
    disk cannot read ends the process with SIGBUS: see `load_file`.
    """
    with opened(disk, name) as file:
        size = disk.size(file)
        reserve_standard()
        return mmap.mmap(file, size, access=mmap.ACCESS_READ) if size else b""


def load_file(disk: Disk, name: str, *, salvage: bool = False) -> mmap.mmap | bytes:
    """The bytes of the file, mapped and read, for a caller that needs all of them.

    With ``salvage``, blocks that the disk cannot read are zeros. Raises OSError.
    """
    data = map_file(disk, name)
    if isinstance(data, mmap.mmap):
        try:
            data.madvise(_MADV_POPULATE_READ)
        except OSError as error:
            if error.errno == errno.EFAULT:
                return _read_salvageable(disk, name) if salvage else read_whole(disk, name)
            if error.errno != errno.EINVAL:
                raise
    return data


def _read_salvageable(disk: Disk, name: str) -> bytes:
    with opened(disk, name) as file:
        size = disk.size(file)
        return b"".join(_read_block(disk, file, at, size) for at in range(0, size, _BLOCK))


def _read_block(disk: Disk, file: int, at: int, size: int) -> bytes:
    length = min(_BLOCK, size - at)
    try:
        return disk.read(file, length, at).ljust(length, b"\0")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return bytes(length)


def sync_file(disk: Disk, name: str) -> None:
    """Sync the file of that name: its writer may have died before its own sync. Raises OSError."""
    with opened(disk, name) as file:
        disk.sync(file)


def create_file(
    disk: Disk,
    name: str,
    pieces: Sequence[bytes | memoryview],
    unfinished: str | None = None,
    guard: contextlib.AbstractContextManager[object] | None = None,
) -> tuple[int, int]:
    """Create the file with this content, durably; returns it, open, and its length.

    With the temporary name ``unfinished`` it replaces the file of its name, within ``guard``; what
    that raises leaves the old file. Raises OSError; then the file has its old content or the new.
    """
    remove_file(disk, unfinished or name)
    file = disk.create(unfinished or name)
    try:
        end = write_whole(disk, file, pieces, 0)
        disk.sync(file)
        if unfinished is not None:
            with guard or contextlib.nullcontext():
                disk.rename(unfinished, name)
        disk.sync_directory()
    except BaseException:
        with contextlib.suppress(OSError):
            disk.close(file)
        raise
    return file, end


def replace_file(
    disk: Disk,
    name: str,
    unfinished: str,
    pieces: Sequence[bytes | memoryview],
    guard: contextlib.AbstractContextManager[object] | None = None,
) -> None:
    """Replace the file durably: see `create_file`."""
    disk.close(create_file(disk, name, pieces, unfinished, guard)[0])


def write_file(
    disk: Disk,
    name: str,
    pieces: Iterable[bytes | memoryview],
    on_written: Callable[[int], object] | None = None,
) -> None:
    """Create the file with this content, and sync it, but not its name. Raises OSError.

    ``on_written`` is called with how many more bytes are written.
    """
    file = disk.create(name)
    try:
        end = 0
        for piece in pieces:
            start, end = end, write_pushed(disk, file, [piece], end)
            if on_written is not None:
                on_written(end - start)
        disk.sync(file)
    finally:
        disk.close(file)


def remove_file(disk: Disk, name: str) -> None:
    """Remove the file, durably, if it exists. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(name)
        disk.sync_directory()


@contextlib.contextmanager
def completed(path: Path) -> Iterator[Path]:
    """A name beside that of a user's file, which gets its own at the end of the block.

    It is a new one, so that two processes do not write into each other's. After an error nothing
    is left of it. Nothing is synced. Raises OSError.
    """
    aside = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_whole(disk: Disk, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
    """Write the pieces one after the other; returns where they end. Raises OSError."""
    left = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
    while left:
        written = disk.write(file, left, offset)
        if written <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        offset += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]
    return offset


def write_pushed(disk: Disk, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
    """Do the same for many bytes that are synced next: the disk begins while the rest is copied."""
    for piece in pieces:
        view = memoryview(piece).cast("B")
        for at in range(0, len(view), _PUSHED):
            start, offset = offset, write_whole(disk, file, [view[at : at + _PUSHED]], offset)
            with contextlib.suppress(OSError):  # only a hint: the sync reports errors
                disk.push(file, start, offset - start)
    return offset
