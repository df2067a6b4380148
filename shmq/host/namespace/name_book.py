"""The names of a namespace's queues, streams and groups, without listing /dev/shm.

``names.shmq@NAMESPACE`` exists as long as the namespace is used. It is a header
and a log of creations and removals:

    0   4   ``SHMN``
    4   4   the version, 1
    8   8   the end of the log; stored last, after the bytes before it
   64       for each change: ``+`` or ``-``, a file's name in /dev/shm, and a newline

Integers are little-endian. A process that creates or removes a file holds the registry lock, and
logs ``+`` before it creates the file, or ``-`` after it has removed it. So a process that dies in
between leaves a name without its file, never the reverse. A log of changes that mostly undid each
other is replaced by a new file; readers compare the inode. So a reader reads only the changes of
other processes, however many names there are.

The files are authoritative, and the book is derived: files may be removed by hand. When the
directory has changed, a process compares the book with it, and corrects the book the next time
it holds the registry lock. A directory of many files is listed at most once a second: until then
a name may have no file if that was removed by hand. A book that is missing, damaged or of
another version is ignored: the directory is listed, and the next process that creates something
rewrites the book.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from shmq.api.names import name_in_group
from shmq.errors import SegmentError
from shmq.host.namespace.folder import file_path, folder_of, list_folder
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native.descriptors import open_file

#: The prefixes of file names: those of queues, of streams, of groups.
KINDS: Final = ("shmq", "stream.shmq", "group.shmq")

_MAGIC: Final = b"SHMN"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sIQ")
_END_AT: Final = 8
_BEGIN: Final = 64

#: A directory of more files than this is listed at most once in `_PAUSE` seconds.
_FEW: Final = 1000
_PAUSE: Final = 1.0

#: From so many changes on, a log of changes that mostly undid each other is rewritten.
_LEAST_TO_SHORTEN: Final = 64
#: More changes than this are applied as sets, not one by one.
_MANY: Final = 64

#: The resolution of file times, in ns: a second change within it does not change the time.
_TICK: Final = 20_000_000

#: So many bytes at the beginning and at the end of the log are read to find any name.
_FEW_BYTES: Final = 2048

_NAME: Final = re.compile(r"[A-Za-z0-9._:@-]{1,255}\Z", re.ASCII)


class _Damaged(Exception):
    """The book is missing, damaged or of another version."""


class NameBook:
    """The names of one namespace. For one thread at a time."""

    def __init__(self, namespace: str, check: Callable[[int, Path], None]) -> None:
        """``check`` refuses a file, by its descriptor, that is not this user's own."""
        self._namespace = namespace
        self._folder = folder_of(namespace)
        self.path = file_path(namespace, "names.")
        self._check = check
        self._mark = f"@{name_in_group(namespace)}@"
        self._stems = tuple(kind + self._mark for kind in KINDS)
        #: A line of the log: the sign, the stem, and the rest of the file's name.
        self._change = re.compile(
            rf"^([+-])({'|'.join(map(re.escape, self._stems))})([A-Za-z0-9._:@-]{{1,255}})\n",
            re.ASCII | re.MULTILINE,
        )
        self._fd = -1
        self._forget()

    def _keep(self, fd: int) -> None:
        """Use that descriptor from now on, and close the present one."""
        old, self._fd = self._fd, fd  # before it is closed: another thread may fork now
        if old >= 0:
            os.close(old)

    def _forget(self) -> None:
        self._keep(-1)
        self._read_to = _BEGIN
        self._changes = 0
        #: By stem, the rest of the files' names; sorted.
        self._names: dict[str, list[str]] = {stem: [] for stem in self._stems}
        #: Files for which the book was found wrong.
        self._doubts: set[str] = set()
        #: When the directory was listed, its stamp then, and whether it has many files.
        self._listed_at = 0.0
        self._stamp: tuple[int, int] | None = None
        self._wide = False

    def release(self) -> None:
        """Close the file; the next read opens it again."""
        self._forget()

    def remove(self) -> None:
        """Remove the file. Needs the registry lock."""
        self.path.unlink(missing_ok=True)
        _core.mark()
        self._forget()

    # ---- reading ----

    def names(self, kind: str, busy: Callable[[], bool], begin: str = "") -> list[str]:
        """The names of that kind that begin with ``begin``, sorted.

        ``busy`` returns whether another process may be creating or removing something.
        """
        self._poll(busy)
        return _select_prefix(self._list_names(kind), begin)

    def noted(self, kind: str, begin: str) -> list[str]:
        """The names that the book has, as by :meth:`names`; some may have lost their files.

        No file is without a name in a valid book: the directory is listed only if there is none.
        """
        try:
            self._catch_up()
        except _Damaged:
            self._forget()
            self._read_directory()
        return _select_prefix(self._list_names(kind), begin)

    def has_any(self, kinds: Iterable[str], busy: Callable[[], bool]) -> bool:
        """Whether there is anything of these kinds. A name counts only if its file exists."""
        kinds = tuple(kinds)
        if self._read_to == _BEGIN and self._has_recent(kinds):
            return True
        for kind in kinds:
            if names := self.noted(kind, ""):
                stem = self._stems[KINDS.index(kind)]
                if not os.path.lexists(self._folder / (stem + names[0])):
                    self._compare(busy)
                if self._list_names(kind):
                    return True
        return False

    def _has_recent(self, kinds: Iterable[str]) -> bool:
        """Whether one of the names that were logged first, or last, has its file.

        For a process that has not read the book, and needs no more of it than this.
        """
        stems = tuple(self._stems[KINDS.index(kind)] for kind in kinds)
        with contextlib.suppress(_Damaged):
            end = self._open_to_end()
            for at in {_BEGIN, max(_BEGIN, end - _FEW_BYTES)}:
                part = os.pread(self._fd, min(_FEW_BYTES, end - at), at).decode("latin-1")
                found = self._change.findall(part)
                if any(
                    sign == "+" and stem in stems and os.path.lexists(self._folder / (stem + name))
                    for sign, stem, name in found
                ):
                    return True
        return False

    def _list_names(self, kind: str) -> list[str]:
        return self._names[self._stems[KINDS.index(kind)]]

    def _poll(self, busy: Callable[[], bool]) -> None:
        """Update the names; list the directory only if it has changed."""
        try:
            self._catch_up()
        except _Damaged:
            self._forget()
            self._read_directory()
        else:
            if self._is_suspect():
                self._compare(busy)

    def _is_suspect(self) -> bool:
        """Whether the directory has changed, and may be listed again."""
        if self._wide and time.monotonic() < self._listed_at + _PAUSE:
            return False
        return _stamp(self._folder) != self._stamp

    def _catch_up(self) -> None:
        """Apply the changes of other processes. Raises _Damaged without a valid book."""
        end = self._open_to_end()
        if end != self._read_to:
            self._apply(os.pread(self._fd, end - self._read_to, self._read_to))
            self._read_to = end

    def _open_to_end(self) -> int:
        """The end of the log, which is not before what was read. Raises _Damaged."""
        if self._fd < 0 or not self._has_name():
            self._forget()
            self._open()
        head = os.pread(self._fd, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            raise _Damaged
        magic, version, end = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION:
            raise _Damaged
        if end != self._read_to and not self._read_to < end <= os.fstat(self._fd).st_size:
            raise _Damaged
        return int(end)

    def _has_name(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        try:
            fd = open_file(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise _Damaged from error
        try:
            self._check(fd, self.path)
        except SegmentError as error:
            os.close(fd)
            raise _Damaged from error
        self._fd = fd

    def _apply(self, log: bytes) -> None:
        """Apply the changes. Applying one twice has no further effect."""
        text = log.decode("latin-1")
        changes = self._change.findall(text)
        if sum(map(len, map("".join, changes))) + len(changes) != len(text):
            raise _Damaged  # something in between is not a change
        if len(changes) > _MANY:
            self._apply_many(changes)
        else:
            for sign, stem, name in changes:
                _set(self._names[stem], name, sign == "+")
        self._changes += len(changes)

    def _apply_many(self, changes: Iterable[tuple[str, str, str]]) -> None:
        tables = {stem: set(names) for stem, names in self._names.items()}
        for sign, stem, name in changes:
            (tables[stem].add if sign == "+" else tables[stem].discard)(name)
        self._names = {stem: sorted(table) for stem, table in tables.items()}

    def _split(self, file: str) -> tuple[str, str] | None:
        """A file's name as its stem and the rest; None if it is of another kind."""
        for stem in self._stems:
            if file.startswith(stem) and len(file) > len(stem):
                return stem, file[len(stem) :]
        return None

    # ---- comparing with the directory ----

    def _compare(self, busy: Callable[[], bool]) -> None:
        """List the directory, and note in memory where the book is wrong.

        A name is logged before its file is created. So a missing file counts as gone only if no
        process is creating one, and it is still missing then.
        """
        before = {stem: set(names) for stem, names in self._names.items()}
        self._read_directory()
        for stem, known in before.items():
            there = set(self._names[stem])
            self._doubts.update(stem + name for name in there - known)
            missing = known - there
            if not missing:
                continue
            unsure = busy()
            for name in missing:
                if unsure or os.path.lexists(self._folder / (stem + name)):
                    _set(self._names[stem], name, True)
                    self._stamp = None
                else:
                    self._doubts.add(stem + name)

    def _read_directory(self) -> None:
        stamp = _stamp(self._folder)
        files = list_folder(self._namespace)
        self._listed_at, self._wide = time.monotonic(), len(files) > _FEW
        self._stamp = stamp if time.time_ns() - stamp[0] > _TICK else None
        found: dict[str, list[str]] = {stem: [] for stem in self._stems}
        for file in [file for file in files if file.startswith(self._stems)]:
            split = self._split(file)
            if split is not None:
                found[split[0]].append(split[1])
        self._names = {stem: sorted(names) for stem, names in found.items()}

    # ---- writing ----

    def note(self, file: str, there: bool) -> None:
        """Log that the file is about to be created, or was removed. Needs the registry lock.

        Raises OSError if a creation cannot be logged; an unlogged removal is found later.
        """
        split = self._split(file)
        assert split is not None
        try:
            if not self._prepare(make=there):
                return
            stem, name = split
            if _has(self._names[stem], name) != there:
                self._append([(there, file)])
                _set(self._names[stem], name, there)
                self._shorten()
        except OSError:
            if there:
                raise
            self._doubts.add(file)

    def _prepare(self, *, make: bool) -> bool:
        """Correct the book, and create it if ``make``; return whether there is one."""
        try:
            self._catch_up()
        except _Damaged:
            self._forget()
            if not make:
                return False
            self._read_directory()
            self._replace()
        if self._doubts:
            found = [(os.path.lexists(self._folder / file), file) for file in sorted(self._doubts)]
            self._append(found)
            for there, file in found:
                stem, name = self._split(file) or ("", "")
                _set(self._names[stem], name, there)
            self._doubts.clear()
        return True

    def _append(self, changes: Iterable[tuple[bool, str]]) -> None:
        log = _log_of(changes)
        _write_at(self._fd, log, self._read_to)
        _core.mark()
        end = self._read_to + len(log)
        _write_at(self._fd, end.to_bytes(8, "little"), _END_AT)
        _core.mark()
        self._read_to = end
        self._changes += log.count(b"\n")

    def _shorten(self) -> None:
        if self._changes > _LEAST_TO_SHORTEN + 2 * sum(map(len, self._names.values())):
            with contextlib.suppress(OSError):  # the long one works, too
                self._replace()

    def _replace(self) -> None:
        """Write the names to a new book, which replaces the old one."""
        log = _log_of((True, stem + name) for stem, names in self._names.items() for name in names)
        aside = self.path.with_name(f"{self.path.name}@new")
        aside.unlink(missing_ok=True)  # left by a process that died
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = open_file(aside, flags)
        try:
            head = _HEAD.pack(_MAGIC, _VERSION, _BEGIN + len(log)).ljust(_BEGIN, b"\0")
            _write_at(fd, head + log, 0)
            _core.mark()
            aside.replace(self.path)
            _core.mark()
        except BaseException:
            os.close(fd)
            aside.unlink(missing_ok=True)
            raise
        self._keep(fd)
        self._read_to = _BEGIN + len(log)
        self._changes = log.count(b"\n")


def _select_prefix(names: list[str], begin: str) -> list[str]:
    """A copy of the sorted names that begin with ``begin``."""
    if not begin:
        return names.copy()
    first = bisect.bisect_left(names, begin)
    return names[first : bisect.bisect_left(names, begin + "\x7f", first)]


def _stamp(folder: Path) -> tuple[int, int]:
    """The directory's stamp, which changes with it, except for changes within a tick."""
    status = os.stat(folder)
    return status.st_mtime_ns, status.st_size


def _has(names: list[str], name: str) -> bool:
    at = bisect.bisect_left(names, name)
    return at < len(names) and names[at] == name


def _set(names: list[str], name: str, there: bool) -> None:
    at = bisect.bisect_left(names, name)
    if at < len(names) and names[at] == name:
        if not there:
            del names[at]
    elif there:
        names.insert(at, name)


def _log_of(changes: Iterable[tuple[bool, str]]) -> bytes:
    """The changes as log lines, without files whose names are not shmq's."""
    lines = (f"{'+' if there else '-'}{file}\n" for there, file in changes if _NAME.match(file))
    return "".join(lines).encode("ascii")


def _write_at(fd: int, data: bytes, where: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, where)
        left, where = left[written:], where + written
