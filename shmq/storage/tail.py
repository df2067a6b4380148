"""The torn tail of a file: a commit behind the last intact one that a power cut interrupted."""

from __future__ import annotations

from typing import NamedTuple

from shmq.storage.disk import Disk
from shmq.storage.file_header import BATCH_BYTES, read_record

__all__ = ["Tail", "read_tail"]


class Tail(NamedTuple):
    """The end of a file that does not count."""

    path: str
    #: Where it begins, and how many bytes were written from there on.
    offset: int
    bytes: int
    #: From the commit's BATCH record: its number, and the last sequence (in a stream, the offset
    #: behind its last record); None: that record is torn, too.
    batch: int | None
    last_seq: int | None

    def told(self, lost: str) -> str:
        """The tail as a log text; ``lost`` says which records it had."""
        return (
            f"the last commit in {self.path} was never finished: {self.bytes} bytes from byte "
            f"{self.offset} on are cut off, with {lost}"
        )


def read_tail(disk: Disk, name: str, end: int, salt: int) -> Tail | None:
    """The bytes written behind ``end`` of the file; None: there are none. Raises OSError."""
    file = disk.open(name)
    try:
        raw = disk.read(file, max(0, disk.size(file) - end), end)
    finally:
        disk.close(file)
    written = len(raw.rstrip(b"\0"))
    if not written:
        return None
    how, kind, _, fields = read_record(raw[:BATCH_BYTES], 0, salt)
    known = (how, kind) == ("ok", "batch")
    batch, last = (int(fields["batch"]), int(fields["last_seq"])) if known else (None, None)
    return Tail(str(disk.path(name)), end, written, batch, last)
