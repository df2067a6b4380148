"""The bytes of a ``.dmsq`` file around its records: header, batches and trailer.

``docs/internals/dmsq.md`` specifies all of it; the records themselves are those of the core
(``record.h``). A writer packs a :class:`FileHeader`, then batches (:func:`pack_batch` precedes
the records of each), and closes the file with the bytes of a :class:`Trailer`. A reader
begins with :func:`read_header`.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgpack

from shmq.disk.storage.disk import Disk, opened
from shmq.errors import DamagedFile, IncompatibleFile
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native._core import pack_record, read_record

VERSION: Final = _core.DMSQ_VERSION
SNAPSHOT: Final = 1
JOURNAL: Final = 2
#: A segment of one partition of a stream, and the metadata file of a stream.
STREAM: Final = 3
STREAM_CARD: Final = 4
#: The exchanges, or the schemas, of a namespace.
DEFINITIONS: Final = 5
#: The producers of one partition of a stream.
STREAM_PRODUCERS: Final = 6
#: Bytes of every BATCH record.
BATCH_BYTES: Final = _core.BATCH_BYTES
#: How many bytes of a file certainly include its header: names and options are short.
HEADER_BYTES: Final = 65536
#: How far apart the entries of an index are, in bytes of the file.
INDEXED: Final = 64 << 10

_MAGIC = b"DMSQ"
#: The scope of each kind of file: a queue, a partition of a stream, a stream, a namespace.
_SCOPES = {SNAPSHOT: 1, JOURNAL: 1, STREAM: 2, STREAM_CARD: 3, DEFINITIONS: 4, STREAM_PRODUCERS: 2}
_FIXED = struct.Struct("<4sHBBIIQQQQqQII")
_CRC = struct.Struct("<I")
#: The magic of a header, and the hash key after 20 bytes.
_HASH_KEY = struct.Struct("<4s20xQ")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """The header of a file."""

    #: ``SNAPSHOT`` or ``JOURNAL`` (a segment of it) of a queue; of a stream, ``STREAM`` (a
    #: segment of a partition), ``STREAM_PRODUCERS`` or ``STREAM_CARD``; of a namespace,
    #: ``DEFINITIONS``.
    kind: int
    #: The name of the queue, stream or namespace, and its options as they are stored.
    name: str
    options: Mapping[str, Any]
    #: The partition, in a file of one.
    partition: int | None = None
    #: The seed of the records' checksums.
    salt: int
    queue_id: int
    hash_key: int
    #: A segment's number; of a snapshot, the first segment to be replayed on top of it; of a
    #: stream's segment, its first offset.
    number: int
    #: In a segment: how many bytes of segment ``number - 1`` count.
    previous_end: int = 0
    #: When the file was created, in ns since 1970.
    created: int
    #: The number of the first batch in the file.
    first_batch: int = 0

    def pack(self) -> bytes:
        """The header as bytes; their number is a multiple of 8."""
        description: dict[str, Any] = {"name": self.name, "options": dict(self.options)}
        if self.partition is not None:
            description["partition"] = self.partition
        names: bytes = msgpack.packb(description)
        size = -(-(_FIXED.size + len(names) + _CRC.size) // 8) * 8
        fixed = _FIXED.pack(
            _MAGIC, VERSION, self.kind, _SCOPES[self.kind], size, self.salt, self.queue_id,
            self.hash_key, self.number, self.previous_end, self.created, self.first_batch,
            len(names), 0,
        )  # fmt: skip
        text = (fixed + names).ljust(size - _CRC.size, b"\0")
        return text + _CRC.pack(_core.crc32c(text))


def read_header(
    data: bytes | bytearray | memoryview, path: str, kinds: Collection[int] = (SNAPSHOT, JOURNAL)
) -> tuple[FileHeader, int]:
    """The header in ``data``, the beginning of the file ``path``; and its length in bytes.

    ``kinds`` are the accepted kinds of file. Raises :class:`~shmq.errors.IncompatibleFile` if it
    is not a .dmsq file or a newer version, and :class:`~shmq.errors.DamagedFile` if the header is
    damaged or of another kind.
    """
    data = memoryview(data).cast("B")
    _check_version(data, path)
    if len(data) < _FIXED.size:
        raise DamagedFile(path, len(data), "the header is cut off")
    _, _, kind, scope, size, salt, queue_id, hash_key, number, *rest = _FIXED.unpack_from(data)
    previous_end, created, first_batch, names, zero = rest
    if size % 8 or not _FIXED.size + names + _CRC.size <= size <= HEADER_BYTES:
        raise DamagedFile(path, 8, f"a header cannot have {size} bytes")
    if len(data) < size:
        raise DamagedFile(path, len(data), f"the header of {size} bytes is cut off")
    if _CRC.unpack_from(data, size - _CRC.size)[0] != _core.crc32c(data[: size - _CRC.size]):
        raise DamagedFile(path, 0, "the header's checksum is not that of its bytes")
    name, options, partition = _read_names(bytes(data[_FIXED.size : _FIXED.size + names]), path)
    if (
        kind not in kinds or _SCOPES[kind] != scope or zero
        or (scope == _SCOPES[STREAM]) != (partition is not None)
    ):  # fmt: skip
        raise DamagedFile(path, 6, f"unknown kind {kind} with scope {scope}")
    header = FileHeader(
        kind=kind, name=name, options=options, salt=salt, queue_id=queue_id, hash_key=hash_key,
        number=number, previous_end=previous_end, created=created, first_batch=first_batch,
        partition=partition,
    )  # fmt: skip
    return header, size


def _check_version(data: memoryview, path: str) -> None:
    if len(data) >= 4 and data[:4] != _MAGIC and any(data[:4]):
        raise IncompatibleFile(f"{path} is not a .dmsq file: it starts with {bytes(data[:4])!r}")
    if len(data) < 8 or not any(data[:4]):
        raise DamagedFile(path, 0, "it has no header")
    version = int.from_bytes(data[4:6], "little")
    if version > VERSION:
        raise IncompatibleFile(
            f"{path} is of format version {version}, and this shmq reads up to {VERSION}: "
            f"use the shmq that wrote it, or a newer one"
        )
    if version == 0:
        raise DamagedFile(path, 4, "format version 0 does not exist")


def _read_names(raw: bytes, path: str) -> tuple[str, dict[str, Any], int | None]:
    try:
        names = msgpack.unpackb(raw)
        partition = names.get("partition")
        return (
            str(names["name"]),
            dict(names["options"]),
            None if partition is None else int(partition),
        )
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise DamagedFile(path, _FIXED.size, f"name and options cannot be read: {error}") from None


def header_of(
    disk: Disk, name: str, kinds: Collection[int] = (SNAPSHOT, JOURNAL)
) -> tuple[FileHeader, int]:
    """The header of the file of that name, and its length: see `read_header`. Raises OSError."""
    with opened(disk, name) as file:
        raw = disk.read(file, HEADER_BYTES, 0)
    return read_header(raw, str(disk.path(name)), kinds)


def hash_key_of(disk: Disk, name: str) -> int | None:
    """The hash key in the file's header; None if it has none, or is gone."""
    try:
        with opened(disk, name) as file:
            raw = disk.read(file, _HASH_KEY.size, 0)
    except FileNotFoundError:
        return None
    if len(raw) < _HASH_KEY.size:
        return None
    magic, key = _HASH_KEY.unpack(raw)
    return int(key) if magic == _MAGIC else None


class Trailer:
    """The end of a closed file: it says that the file is complete, and indexes its batches."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int, int]] = []
        self._batch = self._last_seq = self._batches = self._puts = 0

    def note(self, offset: int, batch: int, last_seq: int, puts: int = 0) -> None:
        """Count the batch whose BATCH record is at ``offset``, with ``puts`` PUT records."""
        self.place(offset, batch, last_seq)
        self.count(batch, last_seq, puts)

    def place(self, offset: int, batch: int, last_seq: int) -> None:
        """Add ``offset`` to the index, unless it has an entry close before it.

        In a stream's segment the other two are the offset and the time of the entry there.
        """
        if not self._places or offset - self._places[-1][0] >= INDEXED:
            self._places.append((offset, batch, last_seq))

    def count(self, batch: int, last_seq: int, puts: int) -> None:
        """Count a batch; in a stream, ``puts`` are its records, ``last_seq`` the next offset."""
        self._batch, self._last_seq = batch, max(self._last_seq, last_seq)
        self._batches += 1
        self._puts += puts

    def pack(self, end: int, salt: int) -> bytes:
        """The bytes of the trailer, to be written at ``end``, after the last batch."""
        complete = pack_record(
            "end", salt, batch=self._batch, last_seq=self._last_seq,
            batches=self._batches, puts=self._puts,
        )  # fmt: skip
        index = pack_record("index", salt, entries=self._places)
        footer = pack_record("footer", salt, end=end, index=end + len(complete))
        return complete + index + footer


@dataclass(frozen=True, slots=True)
class Identity:
    """The queue or stream that a file belongs to, as in the headers of all its files."""

    name: str
    #: Its id in shared memory; that of a stream is new after each recovery.
    id: int
    #: What no other one of its name has, and what survives recovery: the hash key of a queue, the
    #: identity of a stream.
    key: int
    options: dict[str, Any] = field(hash=False)

    def header(
        self,
        kind: int,
        number: int,
        *,
        partition: int | None = None,
        previous_end: int = 0,
        first_batch: int = 0,
    ) -> FileHeader:
        """The header of a new file, with its own salt."""
        return FileHeader(
            kind=kind, name=self.name, options=self.options, partition=partition,
            salt=int.from_bytes(os.urandom(4), "little"), queue_id=self.id, hash_key=self.key,
            number=number, previous_end=previous_end, created=time.time_ns(),
            first_batch=first_batch,
        )  # fmt: skip


class QueueIdentity(Identity):
    """That of a queue."""

    @classmethod
    def of(cls, segment: _core.Segment, name: str) -> QueueIdentity:
        """The identity of the queue in the segment."""
        return cls(name, segment.queue_id, segment.hash_key, segment.options)


class StreamIdentity(Identity):
    """That of a stream."""

    @property
    def identity(self) -> int:
        """The identity that survives recovery; its low half is the salt of the records."""
        return self.key

    @property
    def salt(self) -> int:
        """The salt of the stream's records."""
        return self.key & 0xFFFFFFFF

    def segment(self, partition: int, base: int) -> FileHeader:
        """The header of a new segment."""
        return self.header(STREAM, base, partition=partition, first_batch=base)

    def card(self) -> FileHeader:
        """The header of its metadata file."""
        return self.header(STREAM_CARD, 0)

    def producers(self, partition: int, until: int) -> FileHeader:
        """The header of the file with a partition's producers before ``until``."""
        return self.header(STREAM_PRODUCERS, until, partition=partition, first_batch=until)


class Tail(NamedTuple):
    """The end of a file that does not count."""

    path: str
    #: Where it begins, and how many bytes were written from there on.
    offset: int
    bytes: int
    #: From the commit's BATCH record: its number, and the last sequence (in a stream, the offset
    #: after its last record); None: that record is torn, too.
    batch: int | None
    last_seq: int | None

    def describe(self, lost: str) -> str:
        """The tail as a log text; ``lost`` says which records it had."""
        return (
            f"the last commit in {self.path} was never finished: {self.bytes} bytes from byte "
            f"{self.offset} on are cut off, with {lost}"
        )


def read_tail(disk: Disk, name: str, end: int, salt: int) -> Tail | None:
    """The bytes written after ``end`` of the file; None: there are none. Raises OSError."""
    with opened(disk, name) as file:
        raw = disk.read(file, max(0, disk.size(file) - end), end)
    written = len(raw.rstrip(b"\0"))
    if not written:
        return None
    how, kind, _, fields = read_record(raw[:BATCH_BYTES], 0, salt)
    known = (how, kind) == ("ok", "batch")
    batch, last = (int(fields["batch"]), int(fields["last_seq"])) if known else (None, None)
    return Tail(str(disk.path(name)), end, written, batch, last)
