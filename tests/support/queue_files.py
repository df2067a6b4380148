"""Handmade files: records in batches after a header."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from shmq.disk.storage.file_header import JOURNAL, SNAPSHOT, FileHeader, Trailer
from shmq.native._core import pack_batch, pack_record

SALT = 0x5EED
HASH_KEY = 0x1122334455667788
WALL = 1_700_000_000_000_000_000


class Building:
    """A file in the making: a segment or a snapshot."""

    def __init__(self, kind: int = JOURNAL, number: int = 1, **fields: Any) -> None:
        given = {
            "name": "q", "options": {"capacity": 64}, "salt": SALT, "queue_id": 7,
            "hash_key": HASH_KEY, "created": WALL, **fields,
        }  # fmt: skip
        self.header = FileHeader(kind=kind, number=number, **given)
        self.data = bytearray(self.header.pack())
        self.start = len(self.data)
        #: Where each batch begins, and where the last one ends.
        self.ends = [self.start]
        self._trailer = Trailer()
        self._last = 0
        self._batch = max(self.header.first_batch, 1) - 1

    @classmethod
    def snapshot(cls, number: int, **fields: Any) -> Self:
        return cls(SNAPSHOT, number, **fields)

    def batch(self, *records: tuple[str, dict[str, Any]]) -> Self:
        """Add a batch of records, given as types with their fields."""
        self._batch += 1
        salt = self.header.salt
        body = b"".join(pack_record(kind, salt, **fields) for kind, fields in records)
        puts = [fields["seq"] for kind, fields in records if kind == "put"]
        self._last = max([*puts, self._last])
        self._trailer.note(len(self.data), self._batch, self._last, len(puts))
        self.data += pack_batch(body, salt, self._batch, WALL, self._last) + body
        self.ends.append(len(self.data))
        return self

    def close(self) -> Self:
        self.data += self._trailer.pack(len(self.data), self.header.salt)
        return self

    def __bytes__(self) -> bytes:
        return bytes(self.data)


def put(seq: int, body: bytes = b"body", **fields: Any) -> tuple[str, dict[str, Any]]:
    return "put", {"seq": seq, "body": body, "put_at": WALL, **fields}


def settle(*seqs: int) -> tuple[str, dict[str, Any]]:
    return "settle", {"entries": list(seqs)}


def update(seq: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "update", {"seq": seq, **fields}


def flip(path: Path, at: int) -> None:
    """Flip a bit of a file's byte, in place; below 0 ``at`` counts from the end."""
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        (was,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([was ^ 1]))
