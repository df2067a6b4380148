"""Where a durable stream has its files.

``streams/NAME.ID`` in the data directory is of one stream: ID is its identity, in 16
hexadecimal digits, which it has in all its lives and no other stream of that name. In it
``stream.dmsq`` is its card: without one there is no stream, and what else is there is left
over. The directory ``P`` has the segments of partition P, each of which is called by the
offset that it begins with, and what is known of its producers.
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
#: What the next card is called before it is whole.
UNFINISHED: Final = ".stream.dmsq.tmp"
#: What a segment is called before its header is whole.
UNFINISHED_SEGMENT: Final = ".segment.dmsq.tmp"
#: What is known of a partition's producers, and what that is called before it is whole.
PRODUCERS: Final = "producers.dmsq"
UNFINISHED_PRODUCERS: Final = ".producers.dmsq.tmp"

_STREAM: Final = re.compile(r"(?P<name>[^@/]+)\.(?P<identity>[0-9a-f]{16})", re.ASCII)
_SEGMENT: Final = re.compile(r"(?P<base>\d{20})\.dmsq", re.ASCII)


def stream_directory(name: str, identity: int) -> str:
    """The stream's directory, from the data directory."""
    return f"{STREAMS}/{name}.{identity:016x}"


def partition_directory(name: str, identity: int, partition: int) -> str:
    """That of one of its partitions."""
    return f"{stream_directory(name, identity)}/{partition}"


def segment_file(base: int) -> str:
    """What the segment that begins with the offset ``base`` is called."""
    return f"{base:020d}.dmsq"


def bases(names: Iterable[str]) -> list[int]:
    """The offsets that the segments among these names begin with, ascending."""
    found = (_SEGMENT.fullmatch(name) for name in names)
    return sorted(int(match["base"]) for match in found if match is not None)


def streams_among(names: Iterable[str]) -> list[tuple[str, int]]:
    """The streams whose directories are among these names of ``streams``, with identities."""
    found = (_STREAM.fullmatch(name) for name in names)
    return sorted((match["name"], int(match["identity"], 16)) for match in found if match)
