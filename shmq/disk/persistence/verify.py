"""Checks every byte of one file, whatever it is of: ``shmq dmsq verify``."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, Final

from shmq.disk.persistence.stream_salvage import gaps_between, runs_in
from shmq.disk.storage.disk import ReadOnly
from shmq.disk.storage.file_header import (
    DEFINITIONS,
    HEADER_BYTES,
    JOURNAL,
    SNAPSHOT,
    STREAM,
    STREAM_CARD,
    STREAM_PRODUCERS,
    read_header,
)
from shmq.disk.storage.map_file import parse_map
from shmq.disk.storage.paths import CARD, PRODUCERS, bases, streams_among
from shmq.disk.storage.progress import OnProgress
from shmq.disk.storage.queue_files import QueueFiles, read_file
from shmq.disk.storage.stream_meta import read_card
from shmq.disk.storage.stream_segment import EVERYTHING, StreamSegment
from shmq.errors import DamagedFile, FileError

_SEGMENT_NAME: Final = re.compile(r"\d{20}\.dmsq", re.ASCII)
_KIND_AT: Final = 6
#: What files hold that are of no queue, by the kind in their headers.
_CONTENTS: Final = {
    STREAM: "records of a stream",
    STREAM_CARD: "the options and groups of a stream",
    STREAM_PRODUCERS: "the producers of a stream's partition",
    DEFINITIONS: "exchanges or schemas",
}
_KINDS: Final = {SNAPSHOT, JOURNAL, *_CONTENTS}


def other_content(path: str, data: bytes) -> str | None:
    """What a file holds if its header is intact, and of no queue; else None."""
    try:
        header, _ = read_header(data[:HEADER_BYTES], path, _CONTENTS.keys())
    except FileError:
        return None
    return _CONTENTS[header.kind]


def verify_file(path: Path, on_progress: OnProgress) -> dict[str, Any]:
    """The verdict on one file, as ``shmq dmsq verify --json`` has it.

    ``on_progress`` is called with how many more bytes are read. Raises
    :class:`~shmq.IncompatibleFile`, :class:`~shmq.FileError` and OSError.
    """
    said: dict[str, Any] = {"file": str(path), "sound": False, "offset": None, "what": None}
    data = None if path.is_file() else read_file(path)  # a pipe is read once
    try:
        kind = _read_kind(path, _read_head(path) if data is None else data[:HEADER_BYTES])
        if kind == STREAM_CARD and path.name == CARD:
            return {**said, "sound": True, **_describe_card(path)}
        if kind == STREAM:
            return {**said, **_describe_segment(path, on_progress)}
        data = read_file(path) if data is None else data
        if kind in _CONTENTS:
            parse_map(data, str(path), kind)
            return {**said, "sound": True, "content": _CONTENTS[kind]}
        with QueueFiles([(str(path), data)], partial=True, on_progress=on_progress) as chain:
            return {**said, "sound": True, "torn": chain.torn, "messages": chain.messages}
    except DamagedFile as error:
        return {**said, "offset": error.offset, "what": error.what}


def _read_kind(path: Path, head: bytes) -> int | None:
    """The kind of file, by its head, or if that is damaged, by its name; None: neither says it.

    A queue may have any of these names.
    """
    with contextlib.suppress(FileError):
        return read_header(head, str(path), _KINDS)[0].kind
    if path.name in {CARD, PRODUCERS}:
        return STREAM_CARD if path.name == CARD else STREAM_PRODUCERS
    if _SEGMENT_NAME.fullmatch(path.name) is not None:
        return STREAM
    return head[_KIND_AT] if head[:4] == b"DMSQ" and len(head) > _KIND_AT else None


def _read_head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)


def _describe_card(path: Path) -> dict[str, Any]:
    found = read_card(ReadOnly(path.parent))
    if found is None:
        raise FileNotFoundError(2, "no such file", str(path))
    header, card = found
    return {"stream": header.name, "partitions": card.eras[-1].end, "groups": len(card.groups)}


def _describe_segment(path: Path, on_progress: OnProgress) -> dict[str, Any]:
    """What the segment holds, up to the first offset of its partition's next segment.

    If it is damaged, also the byte, what is wrong, and ``lost``: the ranges of offsets that cannot
    be read, each from the first to the one after the last (None: unknown). ``on_progress`` is
    called with how many more bytes are read. Raises :class:`~shmq.IncompatibleFile`, OSError, and
    DamagedFile if the file's name is not an offset.
    """
    if _SEGMENT_NAME.fullmatch(path.name) is None:
        raise DamagedFile(str(path), 0, "a segment is called by the offset that it begins with")
    base, disk = int(path.stem), ReadOnly(path.parent)
    limit = next((each for each in bases(disk.names()) if each > base), EVERYTHING)
    said: dict[str, Any] = {
        "stream": path.parent.parent.name.rpartition(".")[0],
        "partition": int(path.parent.name) if path.parent.name.isdecimal() else None,
        "first": base,
    }
    try:
        found = StreamSegment(disk, base).check(limit, on_progress)
        if found.offset < limit != EVERYTHING:
            what = f"it ends before offset {limit}, with which the next file begins"
            raise DamagedFile(str(path), found.damage if found.how == "torn" else found.end, what)
    except DamagedFile as error:
        lost = _find_lost_ranges(path, base, limit)
        return {**said, "sound": False, "offset": error.offset, "what": error.what, "lost": lost}
    behind = min(found.offset, limit)
    return {
        **said,
        "sound": True,
        "next": behind,
        "records": behind - base,
        "torn": found.how == "torn" and limit == EVERYTHING,
    }


def _find_lost_ranges(path: Path, base: int, limit: int) -> list[tuple[int, int | None]]:
    """The ranges of offsets without an intact record; the directory's name has the salt."""
    identities = streams_among([path.parent.parent.name])
    salt = identities[0][1] & 0xFFFFFFFF if identities else 0
    runs = runs_in(path.read_bytes(), salt, base, limit)
    return [
        (first, None if behind == EVERYTHING else behind)
        for first, behind in gaps_between(runs, base, limit)
    ]
