"""The stream that a file is of."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from shmq.storage.file_header import STREAM, STREAM_CARD, STREAM_PRODUCERS, FileHeader, new_salt

__all__ = ["StreamIdentity"]


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """What the headers of all its files say."""

    name: str
    #: That of its present life in shared memory.
    stream_id: int
    #: The same in all its lives: the low half is what its records are sealed with.
    identity: int
    options: dict[str, Any] = field(hash=False)

    @property
    def salt(self) -> int:
        """What the stream's records are sealed with."""
        return self.identity & 0xFFFFFFFF

    def segment(self, partition: int, base: int) -> FileHeader:
        """The header of a segment that is made now, with a salt of its own."""
        return self._header(STREAM, base, partition)

    def card(self) -> FileHeader:
        """That of its card."""
        return self._header(STREAM_CARD, 0, None)

    def producers(self, partition: int, until: int) -> FileHeader:
        """That of what is known of a partition's producers before ``until``."""
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
