"""The schemas of a namespace: one file in /dev/shm, which is replaced as a whole.

``schemas.shmq@NAMESPACE`` exists as long as there is a schema, and then until the
data directory has none either: the copy on disk counts only if this file is missing.

    0   4   ``SHMJ``
    4   4   the version, 1
    8   8   the length of what follows the header, in bytes
   16   4   CRC-32C of them
   20       a msgpack map: name -> a list of ``[version, schema, compatibility, at]``

Integers are little-endian. A process that changes it holds the registry lock, writes a new file
and renames it over the old one: a reader finds the old state or the new one, even if that process
is killed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgpack

from shmq import api
from shmq.disk.storage.paths import SCHEMAS
from shmq.errors import DamagedSegment, IncompatibleSegment, InvalidOption, SchemaError, ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.shm_files import as_foreign, as_no_file, as_no_space, refuse_foreign
from shmq.model.schema.compare import problem_between
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native.descriptors import open_file

_MAGIC: Final = b"SHMJ"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sIQI")

#: The largest file, and the most versions of one name.
_LONGEST: Final = 1 << 26
_MOST: Final = 1024

_LOOK: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_Table = dict[str, list["api.SchemaVersion"]]
#: The same table as it is stored in files.
Rows = dict[str, list[list[Any]]]


class Schemas:
    """The schemas of one namespace. Each method reads the file as it is at that moment."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._path = namespace.schemas_path

    def of(self, name: str) -> list[api.SchemaVersion]:
        """Every version of the schema of ``name``, the oldest first. Raises SegmentError."""
        return self._read().get(name, [])

    def set(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        """Make it the newest version, unless it already is; returns the version's number.

        ``rule`` None: that of the newest version, or else ``"backward"``. Raises
        SchemaError, InvalidOption, NoSpace, SegmentError.
        """
        with self._namespace.locked():
            table = self._read()
            known = table.setdefault(name, [])
            newest = known[-1] if known else None
            chosen = rule or (newest.compatibility if newest else "backward")
            if newest is not None and newest.schema == schema and newest.compatibility == chosen:
                return newest.version
            check_versions(name, schema, chosen, known)
            version = newest.version + 1 if newest else 1
            known.append(
                api.SchemaVersion(
                    name=name, version=version, schema=schema, compatibility=chosen, at=time.time()
                )
            )
            self._write(table)
            return version

    def check(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        """Raise what `set` would raise, and change nothing."""
        known = self.of(name)
        chosen = rule or (known[-1].compatibility if known else "backward")
        check_versions(name, schema, chosen, known)

    def tidy(self, exists: Callable[[str], bool]) -> None:
        """Remove the schemas of deleted queues and streams. Needs the registry lock."""
        if not self._path.exists():
            return
        table = self._read()
        left = {name: versions for name, versions in table.items() if exists(name)}
        if not left and self._namespace.drop_stored(SCHEMAS):
            self._path.unlink(missing_ok=True)
        elif len(left) < len(table):
            self._write(left)

    # ---- for the disk ----

    def stamp(self) -> tuple[int, int, int] | None:
        """A stamp that differs whenever the schemas differ; None: no file exists."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def rows(self) -> Rows:
        """All schemas, as they are stored in files. Raises SegmentError."""
        return _make_rows(self._read())

    def restore(self, table: _Table) -> None:
        """Create the file with these, if there is none. Needs the registry lock. Raises NoSpace."""
        self._write(table)

    # ---- the file ----

    def _read(self) -> _Table:
        try:
            fd = open_file(self._path, _LOOK)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise as_foreign(error, self._path) from error
        try:
            refuse_foreign(fd, self._path)
            return _parse(self._path, _read_whole(self._path, fd))
        finally:
            os.close(fd)

    def _write(self, table: _Table) -> None:
        packed = msgpack.packb(_make_rows(table))
        raw = _HEAD.pack(_MAGIC, _VERSION, len(packed), _core.crc32c(packed)) + packed
        if len(raw) > _LONGEST:
            raise InvalidOption(f"the namespace's schemas would have {len(raw)} bytes: too many")
        aside = self._path.with_name(f"{self._path.name}@new")
        aside.unlink(missing_ok=True)  # left by a process that died
        _write_whole(aside, raw)
        _core.mark()
        aside.replace(self._path)
        _core.mark()


def check_versions(
    name: str, schema: dict[str, Any], rule: str, known: list[api.SchemaVersion]
) -> None:
    """Compare it with every version, since messages of each may still exist.

    Raises SchemaError and InvalidOption.
    """
    if len(known) >= _MOST:
        raise InvalidOption(f"{name!r} has {_MOST} versions of its schema, the most it may have")
    for other in reversed(known):
        try:
            problem = problem_between(schema, other.schema, rule)
        except (ValueError, RecursionError, TypeError, AttributeError) as error:
            raise InvalidOption(f"the schema of {name!r} cannot be compared: {error}") from error
        if problem is not None:
            raise SchemaError(
                f"the schema of {name!r} is not {rule} compatible with its version "
                f"{other.version}: {problem}",
                name,
                problem.field,
            )


def _read_whole(path: Path, fd: int) -> bytes:
    """The file's bytes, whose number must match its header. Raises SegmentError."""
    head = os.pread(fd, _HEAD.size, 0)
    size = _check_head(path, head)
    if size > _LONGEST or os.fstat(fd).st_size != len(head) + size:
        raise _make_damaged_error(
            path, f"it has {os.fstat(fd).st_size} bytes, and says {len(head) + size}"
        )
    return head + os.pread(fd, size, len(head))


def _write_whole(path: Path, raw: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = open_file(path, flags)
    except OSError as error:
        raise as_no_file(error, path) from error
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(raw)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise as_no_space(error, len(raw)) from error


def _check_head(path: Path, raw: bytes) -> int:
    """How many bytes follow the header. Raises SegmentError."""
    if len(raw) < _HEAD.size or raw[:4] != _MAGIC:
        raise _make_damaged_error(path, "it is not a table of schemas")
    _, version, size, _ = _HEAD.unpack_from(raw)
    if version != _VERSION:
        raise IncompatibleSegment(
            f"{path} is of version {version}, and this shmq reads version {_VERSION}: use the shmq "
            f"that wrote it, or remove it and set the schemas again"
        )
    return int(size)


def _parse(path: Path, raw: bytes) -> _Table:
    _, _, size, crc = _HEAD.unpack_from(raw)
    packed = raw[_HEAD.size :]
    if len(packed) != size or _core.crc32c(packed) != crc:
        raise _make_damaged_error(path, "its bytes are not those that were written")
    try:
        return versions_of(msgpack.unpackb(packed, strict_map_key=False))
    except (ValueError, TypeError, LookupError, AttributeError, ShmqError) as error:
        raise _make_damaged_error(path, f"it makes no sense: {error}") from error


def _make_rows(table: _Table) -> Rows:
    return {
        name: [[each.version, each.schema, each.compatibility, each.at] for each in versions]
        for name, versions in table.items()
        if versions
    }


def versions_of(found: Rows) -> _Table:
    """The schemas in the rows of a file. Raises TypeError, or another error, if they are wrong."""
    return {name: [_make_version(name, *row) for row in rows] for name, rows in found.items()}


def _make_version(name: str, version: int, schema: Any, rule: str, at: float) -> api.SchemaVersion:
    if not isinstance(version, int) or not isinstance(schema, dict) or not isinstance(rule, str):
        raise TypeError(f"a version of {name!r} is none")
    return api.SchemaVersion(name=name, version=version, schema=schema, compatibility=rule, at=at)


def _make_damaged_error(path: Path, what: str) -> DamagedSegment:
    return DamagedSegment(f"{path} is damaged: {what}; remove it, and set the schemas again")
