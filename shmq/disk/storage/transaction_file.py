"""The file of the transactions that are not completely on disk yet: ``writer.txn``.

It has the steps of each committed transaction for queues and streams with a journal, in terms
that do not depend on shared memory, and which parts are on disk by now. ``docs/internals/dmsq.md``
specifies it. It is appended to and synced, or replaced by a new file that is synced and renamed.
A torn record at its end was never confirmed.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from shmq.disk.storage.disk import (
    AppendedFile,
    Disk,
    create_file,
    read_whole,
    remove_file,
    sync_file,
    write_whole,
)
from shmq.errors import DamagedFile, IncompatibleFile
from shmq.native import _core

#: Its name in the data directory, and its temporary name.
TRANSACTIONS: Final = "writer.txn"
_UNFINISHED: Final = "writer.txn.tmp"

_MAGIC: Final = b"DMST"
_VERSION: Final = 1
#: The magic, the version, the salt, and the CRC-32C of these.
_HEAD: Final = struct.Struct("<4sII")
_CRC: Final = struct.Struct("<I")
_BEGIN: Final = 16
#: A record's head: its length, and the CRC-32C of its bytes, seeded with the salt and the length.
_RECORD: Final = struct.Struct("<II")

#: The process and the number of a transaction.
Id = tuple[int, int]
#: A part that is written by itself: "queue", "stream" or "groups", name, identity.
Part = tuple[str, str, int]
#: The steps of a transaction, and the kind of part that each is for.
_STEPS: Final = {"acks": "queue", "puts": "queue", "appends": "stream", "offsets": "groups"}


@dataclass
class StoredTransaction:
    """A transaction, and its parts that are not known to be on disk."""

    id: Id
    work: dict[str, Any]
    parts: set[Part] = field(default_factory=set)

    def packed(self) -> list[Any]:
        """What is left to do, for the file."""
        left = {
            step: [one for one in self.work[step] if (kind, *one[:2]) in self.parts]
            for step, kind in _STEPS.items()
        }
        return ["open", *self.id, {"process": self.id[0], **left}]


def parts_of(work: dict[str, Any]) -> set[Part]:
    """The parts that have steps of the transaction."""
    return {(kind, one[0], one[1]) for step, kind in _STEPS.items() for one in work[step]}


class TransactionFile(AppendedFile):
    """Writes the file. For one thread at a time."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self._salt = 0
        #: The length of the file.
        self.end = 0

    def add(
        self, transactions: Iterable[StoredTransaction], done: Iterable[tuple[Id, Part]]
    ) -> None:
        """Append these as one record, and sync it: only the last one of the file can be torn.

        Raises OSError; then the file has to be replaced.
        """
        steps = [one.packed() for one in transactions]
        marks = [[*of, *part] for of, part in done]
        if marks:
            steps.append(["done", marks])
        try:
            end = write_whole(self._disk, self._file, [_pack(steps, self._salt)], self.end)
            self._disk.sync(self._file)
            self.end = end
        except OSError:
            self.abandon()
            raise

    def replace(self, transactions: Collection[StoredTransaction]) -> None:
        """Replace the file with one that has only these. Raises OSError."""
        self.abandon()
        salt = int.from_bytes(os.urandom(4), "little")
        head = _HEAD.pack(_MAGIC, _VERSION, salt)
        data = [
            head,
            _CRC.pack(_core.crc32c(head)),
            *(_pack([t.packed()], salt) for t in transactions),
        ]
        self._file, self.end = create_file(self._disk, TRANSACTIONS, data, _UNFINISHED)
        self._salt = salt

    def remove(self) -> None:
        """Remove the file: no transaction is left. Raises OSError."""
        self.abandon()
        remove_file(self._disk, TRANSACTIONS)


def _pack(steps: list[list[Any]], salt: int) -> bytes:
    packed: bytes = msgpack.packb(steps)
    size = len(packed).to_bytes(4, "little")
    crc = _core.crc32c(packed, _core.crc32c(size, salt))
    whole = _RECORD.pack(len(packed), crc) + packed
    return whole.ljust(-(-len(whole) // 8) * 8, b"\0")


def read_noted(disk: Disk) -> list[StoredTransaction]:
    """The transactions of the file that are not done, in order; none without a file.

    The file is synced: its writer may have died before its own sync. Raises DamagedFile with what
    to do, IncompatibleFile, and OSError.
    """
    noted, damage = _read(disk)
    if damage is not None:
        raise DamagedFile(
            damage.path,
            damage.offset,
            f"{damage.what}; its transactions may be on disk in part, so nothing is "
            f"recovered: `shmq restore --salvage` completes its intact transactions, sets the file "
            f"aside, and restores the rest",
        )
    return noted


def salvage_noted(disk: Disk) -> str | None:
    """Replace a damaged file with its intact transactions; returns what was wrong, or None.

    The damaged file is kept beside it. Raises IncompatibleFile and OSError.
    """
    noted, damage = _read(disk)
    if damage is None:
        return None
    there = next(
        name
        for name in (f"{TRANSACTIONS}.damaged.{number}" for number in itertools.count(1))
        if name not in disk.names()
    )
    disk.close(create_file(disk, there, [_read_synced(disk)])[0])
    written = TransactionFile(disk)
    written.replace(noted)
    written.abandon()
    return f"{damage}; it is renamed to {there}, and its other transactions may be on disk in part"


def _read_synced(disk: Disk) -> bytes:
    sync_file(disk, TRANSACTIONS)
    disk.sync_directory()
    return read_whole(disk, TRANSACTIONS)


def _read(disk: Disk) -> tuple[list[StoredTransaction], DamagedFile | None]:
    """The intact transactions in the file, and the first damage."""
    if TRANSACTIONS not in disk.names():
        return [], None
    raw, path = _read_synced(disk), str(disk.path(TRANSACTIONS))
    damage = None
    try:
        salt = _read_salt(raw, path)
    except DamagedFile as error:
        damage, salt = error, int.from_bytes(raw[8:12], "little")
    noted: dict[Id, StoredTransaction] = {}
    at = _BEGIN
    while True:
        record = _read_record(raw, at, salt)
        if record is None:
            later = _find_record(raw, at + 8, salt)
            if later is None:
                return list(noted.values()), damage
            damage = damage or DamagedFile(path, at, "a transaction is not as it was written")
            at = later
            continue
        try:
            for step in msgpack.unpackb(record[0], strict_map_key=False):
                _apply_step(noted, step)
        except (ValueError, TypeError, KeyError, IndexError, msgpack.UnpackException) as error:
            # This also covers a mark for a transaction that cannot be read.
            damage = damage or DamagedFile(path, at, f"a transaction cannot be read: {error}")
        at = record[1]


def _find_record(raw: bytes, begin: int, salt: int) -> int | None:
    """The position of the next intact record, from that byte on."""
    places = range(begin, len(raw) - _RECORD.size + 1, 8)
    return next((at for at in places if _read_record(raw, at, salt) is not None), None)


def _apply_step(noted: dict[Id, StoredTransaction], step: list[Any]) -> None:
    if step[0] == "open":
        work = step[3]
        noted[step[1], step[2]] = StoredTransaction((step[1], step[2]), work, parts_of(work))
        return
    for process, number, *part in step[1]:
        one = noted[process, number]
        one.parts.discard((part[0], part[1], part[2]))
        if not one.parts:
            del noted[process, number]


def _read_salt(raw: bytes, path: str) -> int:
    if len(raw) < _BEGIN or _CRC.unpack_from(raw, 12)[0] != _core.crc32c(raw[:12]):
        raise DamagedFile(path, 0, "the header's checksum is not that of its bytes")
    magic, version, salt = _HEAD.unpack_from(raw)
    if magic != _MAGIC or version != _VERSION:
        raise IncompatibleFile(
            f"{path} is of format version {version}, and this shmq reads version {_VERSION}: "
            f"use the shmq that wrote it"
        )
    return int(salt)


def _read_record(raw: bytes, at: int, salt: int) -> tuple[bytes, int] | None:
    """The bytes of the record, and the position of the next; None: no intact record follows."""
    if at + _RECORD.size > len(raw):
        return None
    size, crc = _RECORD.unpack_from(raw, at)
    packed = raw[at + _RECORD.size : at + _RECORD.size + size]
    if not size or len(packed) < size:
        return None
    if _core.crc32c(packed, _core.crc32c(raw[at : at + 4], salt)) != crc:
        return None
    return packed, at + -(-(_RECORD.size + size) // 8) * 8
