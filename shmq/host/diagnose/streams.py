"""Checks the files of durable streams.

They may be written in the meantime: an incomplete commit at a partition's end is not damage.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Iterator
from typing import Final

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import (
    STREAMS,
    bases,
    partition_directory,
    segment_file,
    stream_directory,
    streams_among,
)
from shmq.disk.storage.stream_meta import read_card
from shmq.disk.storage.stream_segment import EVERYTHING, StreamSegment
from shmq.errors import FileError
from shmq.host.diagnose.segments import SOUND, SegmentReport
from shmq.host.namespace.namespace import Namespace


def examine_files(namespace: str) -> list[SegmentReport]:
    """Check every record in each durable stream's files; a stream may be in use."""
    directory = Namespace.of(namespace).roles.data_dir
    if directory is None:
        return []
    disk, found = Disk(directory), []
    for name, identity in stored_streams(disk):
        try:
            problems = stream_problems(disk, name, identity)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue  # it was deleted in the meantime
            problems = [f"{error.filename or directory} cannot be read: {error.strerror}"]
        state = "damaged" if problems else SOUND
        own = stream_directory(name, identity)
        found.append(SegmentReport(name=own, state=state, problems=problems))
    return found


#: The longest header of a segment, in bytes.
_HEADER: Final = 4096


def stored_streams(disk: Disk) -> list[tuple[str, int]]:
    """The streams that have files in the data directory, with their identities, sorted."""
    return streams_among(disk.under(STREAMS).names())


def stream_problems(disk: Disk, name: str, identity: int) -> list[str]:
    """The problems of a stream's files, one line each."""
    own = disk.under(stream_directory(name, identity))
    there = own.names()  # read first: the card has a partition before its directory is created
    try:
        card = read_card(own)
    except FileError as error:
        return [str(error)]
    if card is None:
        return []  # it is being created or removed
    count = card[1].eras[-1].end
    return [
        *(
            f"{own.path(entry)} belongs to no partition: the metadata has 0 to {count - 1}"
            for entry in there
            if entry.isdecimal() and int(entry) >= count
        ),
        *(
            problem
            for partition in range(count)
            for problem in _check_partition(
                disk.under(partition_directory(name, identity, partition))
            )
        ),
    ]


def _check_partition(disk: Disk) -> Iterator[str]:
    for base, following in itertools.pairwise([*bases(disk.names()), EVERYTHING]):
        with contextlib.suppress(FileNotFoundError):  # retention removed it
            yield from _check_segment(disk, base, following)


def _check_segment(disk: Disk, base: int, following: int) -> Iterator[str]:
    segment = disk.path(segment_file(base))
    try:
        found = StreamSegment(disk, base).check(following)
        if found.offset < following != EVERYTHING:
            yield f"{segment} ends at offset {found.offset}, and the next is {following}"
    except FileError as error:
        if following == EVERYTHING and segment.stat().st_size <= _HEADER:
            return  # it is being created
        yield str(error)
