"""The names of the files of durable streams.

``streams/NAME.ID`` in the data directory belongs to one stream: ID is its identity, in 16
hexadecimal digits, which survives recovery and which no other stream of that name has. In it
``stream.dmsq`` is the metadata file (card): without it there is no stream, and the other files are
leftovers. The directory ``P`` has the segments of partition P, each named by its first offset, and
the file of its producers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = [
    "CARD",
    "PRODUCERS",
    "STREAMS",
    "UNFINISHED",
    "UNFINISHED_PRODUCERS",
    "UNFINISHED_SEGMENT",
    "bases",
    "partition_directory",
    "segment_file",
    "stream_directory",
    "streams_among",
]

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
_SEGMENT: Final = re.compile(r"(?P<base>\d{20})\.dmsq", re.ASCII)


def stream_directory(name: str, identity: int) -> str:
    """The stream's directory, below the data directory."""
    return f"{STREAMS}/{name}.{identity:016x}"


def partition_directory(name: str, identity: int, partition: int) -> str:
    """The directory of one of its partitions."""
    return f"{stream_directory(name, identity)}/{partition}"


def segment_file(base: int) -> str:
    """The name of the segment with the first offset ``base``."""
    return f"{base:020d}.dmsq"


def bases(names: Iterable[str]) -> list[int]:
    """The first offsets of the segments among these names, ascending."""
    found = (_SEGMENT.fullmatch(name) for name in names)
    return sorted(int(match["base"]) for match in found if match is not None)


def streams_among(names: Iterable[str]) -> list[tuple[str, int]]:
    """The streams whose directories are among these names of ``streams``, with identities."""
    found = (_STREAM.fullmatch(name) for name in names)
    return sorted((match["name"], int(match["identity"], 16)) for match in found if match)
