"""The names of the files in a data directory.

For queue ``NAME``: ``NAME.dmsq`` is its snapshot, and ``NAME@0000000000000001.dmsq`` and so
on are the segments of its journal, whose numbers are never reused; ``.NAME.dmsq.tmp`` is a
snapshot that is being written. No queue's name has an ``@``, so the names are unambiguous.
Files of an earlier queue of that name are set aside as ``FILE.ID``, with the hash key of their
queue in 16 hexadecimal digits, and ``.2`` and so on if that is taken: files that were set aside
together have the same number.

The directory ``streams/NAME.ID`` belongs to one stream: ID is its identity, in 16 hexadecimal
digits, which survives recovery and which no other stream of that name has. In it ``stream.dmsq``
is the metadata file (card): without it the stream does not exist, and the other files are
leftovers. The directory ``P`` has the segments of partition P, each named by its first offset, and
the file of its producers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

SUFFIX: Final = ".dmsq"
#: The exchanges of the namespace, and the schemas of its queues and streams.
EXCHANGES: Final = "writer.exchanges"
SCHEMAS: Final = "writer.schemas"
#: The writer's control socket, and its name until it listens: the first is that of a socket that
#: accepts connections as long as the writer lives.
SOCKET: Final = "writer.sock"
UNFINISHED_SOCKET: Final = ".writer.sock.tmp"
#: The directory of the tables, which their users write: see shmq.model.table.files.
TABLES: Final = "tables"

_SEGMENT: Final = re.compile(r"(?P<queue>[^@]+)@(?P<number>\d{16})\.dmsq", re.ASCII)
_SNAPSHOT: Final = re.compile(r"(?P<queue>[^@]+)\.dmsq", re.ASCII)
_UNFINISHED: Final = re.compile(r"\.(?P<queue>[^@]+)\.dmsq\.tmp", re.ASCII)


@dataclass
class Files:
    """The files of one queue."""

    queue: str
    snapshot: bool = False
    unfinished: bool = False
    #: The numbers of its segments, ascending.
    segments: list[int] = field(default_factory=list)

    def names(self) -> Iterator[str]:
        """The names of all its files; the snapshot first."""
        if self.snapshot:
            yield snapshot_name(self.queue)
        if self.unfinished:
            yield unfinished(self.queue)
        yield from (segment_name(self.queue, number) for number in self.segments)


def snapshot_name(queue: str) -> str:
    """The name of the queue's snapshot."""
    return f"{queue}{SUFFIX}"


def segment_name(queue: str, number: int) -> str:
    """The name of the segment of that number of the queue's journal."""
    return f"{queue}@{number:016d}{SUFFIX}"


def unfinished(queue: str) -> str:
    """The temporary name of the queue's next snapshot."""
    return f".{queue}{SUFFIX}.tmp"


def free_name(first: str, taken: Collection[str]) -> str:
    """``first``, or ``first`` with ``.2`` and so on appended, whichever is not ``taken``."""
    return next(one for one in _number_names(first) if one not in taken)


def aside_names(files: Mapping[str, int | None], taken: Collection[str]) -> dict[str, str]:
    """New names for a queue's files, given with their hash keys; none is ``taken``.

    A file whose hash key cannot be read gets that of the others, if they have only one.
    """
    keys = {key for key in files.values() if key is not None}
    unread = keys.pop() if len(keys) == 1 else 0
    lives: dict[int, list[str]] = {}
    for file, key in files.items():
        lives.setdefault(unread if key is None else key, []).append(file)
    renamed: dict[str, str] = {}
    for key, own in lives.items():
        numbered = zip(*(_number_names(f"{file}.{key:016x}") for file in own), strict=True)
        free = next(names for names in numbered if not any(name in taken for name in names))
        renamed.update(zip(own, free, strict=True))
    return renamed


def _number_names(first: str) -> Iterator[str]:
    yield first
    for number in itertools.count(2):
        yield f"{first}.{number}"


def catalog(names: Iterable[str]) -> dict[str, Files]:
    """The queues that have files among ``names``; other names are left out."""
    found: dict[str, Files] = {}
    for name in sorted(names):
        for pattern in (_SEGMENT, _SNAPSHOT, _UNFINISHED):
            if (match := pattern.fullmatch(name)) is not None:
                break
        else:
            continue
        queue = match["queue"]
        files = found.setdefault(queue, Files(queue))
        if pattern is _SEGMENT:
            files.segments.append(int(match["number"]))
        elif pattern is _SNAPSHOT:
            files.snapshot = True
        else:
            files.unfinished = True
    return found


STREAMS: Final = "streams"
CARD: Final = "stream.dmsq"
#: The temporary name of the next metadata file.
UNFINISHED: Final = ".stream.dmsq.tmp"
#: The name of a segment before its header is synced.
UNFINISHED_SEGMENT: Final = ".segment.dmsq.tmp"
#: The file of a partition's producers, and its temporary name.
PRODUCERS: Final = "producers.dmsq"
UNFINISHED_PRODUCERS: Final = ".producers.dmsq.tmp"

_STREAM: Final = re.compile(r"(?P<name>[^@/]+)\.(?P<identity>[0-9a-f]{16})", re.ASCII)
_STREAM_SEGMENT: Final = re.compile(r"(?P<base>\d{20})\.dmsq", re.ASCII)
#: A file below a stream's directory that is complete, also one that its stream no longer uses.
_STREAM_FILE: Final = re.compile(
    r"(stream|\d+/(\d{20}|producers))\.dmsq(\.(damaged|astray)(\.\d+)?)?", re.ASCII
)


def stream_directory(name: str, identity: int) -> str:
    """The stream's directory, below the data directory."""
    return f"{STREAMS}/{name}.{identity:016x}"


def partition_directory(name: str, identity: int, partition: int) -> str:
    """The directory of one of its partitions."""
    return f"{stream_directory(name, identity)}/{partition}"


def segment_file(base: int) -> str:
    """The name of the segment with the first offset ``base``."""
    return f"{base:020d}.dmsq"


def is_stream_file(path: str) -> bool:
    """Whether a stream has a file of that path below its directory."""
    return _STREAM_FILE.fullmatch(path) is not None


def bases(names: Iterable[str]) -> list[int]:
    """The first offsets of the segments among these names, ascending."""
    found = (_STREAM_SEGMENT.fullmatch(name) for name in names)
    return sorted(int(match["base"]) for match in found if match is not None)


def streams_among(names: Iterable[str]) -> list[tuple[str, int]]:
    """The streams whose directories are among these names of ``streams``, with identities."""
    found = (_STREAM.fullmatch(name) for name in names)
    return sorted((match["name"], int(match["identity"], 16)) for match in found if match)
