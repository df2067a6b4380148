"""The identity of the queue that a file belongs to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from shmq.native import _core
from shmq.storage.file_header import FileHeader, new_salt

__all__ = ["Identity"]


@dataclass(frozen=True, slots=True)
class Identity:
    """The queue's identity, as in the headers of all its files."""

    name: str
    queue_id: int
    hash_key: int
    options: dict[str, Any] = field(hash=False)

    @classmethod
    def of(cls, segment: _core.Segment, name: str) -> Identity:
        """The identity of the queue in the segment."""
        return cls(name, segment.queue_id, segment.hash_key, segment.options)

    def header(
        self, kind: int, number: int, *, previous_end: int = 0, first_batch: int = 0
    ) -> FileHeader:
        """The header of a new file, with its own salt."""
        return FileHeader(
            kind=kind,
            name=self.name,
            options=self.options,
            salt=new_salt(),
            queue_id=self.queue_id,
            hash_key=self.hash_key,
            number=number,
            previous_end=previous_end,
            created=time.time_ns(),
            first_batch=first_batch,
        )
