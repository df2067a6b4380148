"""Verifies one file of a stream: a segment of a partition, or the metadata file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from shmq.errors import DamagedFile
from shmq.persistence.stream_salvage import runs_in
from shmq.storage.disk import Disk
from shmq.storage.file_header import STREAM, STREAM_CARD
from shmq.storage.paths import CARD, bases, streams_among
from shmq.storage.stream_meta import read_card
from shmq.storage.stream_segment import EVERYTHING, StreamSegment

__all__ = ["is_of_stream", "verify_card", "verify_segment"]

_SEGMENT: Final = re.compile(r"\d{20}\.dmsq", re.ASCII)
_KIND_AT: Final = 6
_KINDS: Final = (bytes([STREAM]), bytes([STREAM_CARD]))


def is_of_stream(path: Path, raw: bytes) -> bool:
    """Whether the file belongs to a stream, by its name or its header."""
    named = path.name == CARD or _SEGMENT.fullmatch(path.name) is not None
    return named or (raw[:4] == b"DMSQ" and raw[_KIND_AT : _KIND_AT + 1] in _KINDS)


def verify_card(path: Path) -> dict[str, Any]:
    """What the metadata file says. Raises FileError and OSError."""
    found = read_card(Disk(path.parent))
    if found is None:
        raise FileNotFoundError(2, "there is no such file", str(path))
    header, card = found
    return {"stream": header.name, "partitions": card.eras[-1].end, "groups": len(card.groups)}


def verify_segment(path: Path) -> dict[str, Any]:
    """What the segment holds, up to the first offset of its partition's next segment.

    If it is damaged, also the byte, what is wrong, and ``lost``: the ranges of offsets that cannot
    be read, each from the first to the one behind the last (None: unknown). Raises
    :class:`~shmq.IncompatibleFile`, OSError, and DamagedFile if the file's name is no offset.
    """
    if _SEGMENT.fullmatch(path.name) is None:
        raise DamagedFile(str(path), 0, "a segment is called by the offset that it begins with")
    base, disk = int(path.stem), Disk(path.parent)
    limit = next((each for each in bases(disk.names()) if each > base), EVERYTHING)
    told: dict[str, Any] = {
        "stream": path.parent.parent.name.rpartition(".")[0],
        "partition": int(path.parent.name) if path.parent.name.isdecimal() else None,
        "first": base,
    }
    try:
        found = StreamSegment(disk, base).check(limit)
        if found.offset < limit != EVERYTHING:
            what = f"it ends before offset {limit}, with which the next file begins"
            raise DamagedFile(str(path), found.end, what)
    except DamagedFile as error:
        lost = _lost(path, base, limit)
        return {**told, "sound": False, "offset": error.offset, "what": error.what, "lost": lost}
    behind = min(found.offset, limit)
    return {
        **told,
        "sound": True,
        "next": behind,
        "records": behind - base,
        "torn": found.how == "torn" and limit == EVERYTHING,
    }


def _lost(path: Path, base: int, limit: int) -> list[tuple[int, int | None]]:
    """The ranges of offsets without an intact record; the directory's name has the salt."""
    identities = streams_among([path.parent.parent.name])
    salt = identities[0][1] & 0xFFFFFFFF if identities else 0
    runs = runs_in(path.read_bytes(), salt, base, limit)
    ends = [base, *(run.next for run in runs)]
    begins = [*(run.first for run in runs), limit]
    return [
        (end, None if begin == EVERYTHING else begin)
        for end, begin in zip(ends, begins, strict=True)
        if end < begin
    ]
