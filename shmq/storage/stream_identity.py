"""The identity of the stream that a file belongs to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from shmq.storage.file_header import STREAM, STREAM_CARD, STREAM_PRODUCERS, FileHeader, new_salt

__all__ = ["StreamIdentity"]


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """The stream's identity, as in the headers of all its files."""

    name: str
    #: The id in shared memory, new after each recovery.
    stream_id: int
    #: The identity that survives recovery; its low half is the salt of the records.
    identity: int
    options: dict[str, Any] = field(hash=False)

    @property
    def salt(self) -> int:
        """The salt of the stream's records."""
        return self.identity & 0xFFFFFFFF

    def segment(self, partition: int, base: int) -> FileHeader:
        """The header of a new segment, with its own salt."""
        return self._header(STREAM, base, partition)

    def card(self) -> FileHeader:
        """The header of its metadata file."""
        return self._header(STREAM_CARD, 0, None)

    def producers(self, partition: int, until: int) -> FileHeader:
        """The header of the file with a partition's producers before ``until``."""
        return self._header(STREAM_PRODUCERS, until, partition)

    def _header(self, kind: int, number: int, partition: int | None) -> FileHeader:
        return FileHeader(
            kind=kind,
            name=self.name,
            options=self.options,
            partition=partition,
            salt=new_salt(),
            queue_id=self.stream_id,
            hash_key=self.identity,
            number=number,
            created=time.time_ns(),
            first_batch=number,
        )
