"""The metadata file (card) of a durable stream: its options, generations and groups' offsets.

A *generation* is the partitions that were created together: the first with the stream, and one
more with each repartition. Records are appended to the last one; the others are sealed, and have
the older records of the same keys. The file's format is that of :mod:`shmq.disk.storage.map_file`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import STREAM_CARD, FileHeader, StreamIdentity
from shmq.disk.storage.map_file import read_map, write_map
from shmq.disk.storage.paths import CARD, UNFINISHED
from shmq.errors import DamagedFile
from shmq.native._stream import MAX_PARTITIONS


@dataclass(frozen=True, slots=True)
class Generation:
    """The ``count`` partitions from ``begin`` on."""

    begin: int
    count: int
    #: When they were created, in ns since 1970; 0: with the stream.
    made: int = 0

    @property
    def end(self) -> int:
        """The partition after the last one."""
        return self.begin + self.count

    @property
    def partitions(self) -> range:
        """Its partitions."""
        return range(self.begin, self.end)


class PartitionOfGeneration(Protocol):
    """What a partition in shared memory says about its generation."""

    @property
    def behind(self) -> int:
        """The first partition of its generation."""

    @property
    def created_at(self) -> int:
        """When it was created, in ns since 1970."""


def eras_of(counts: Iterable[tuple[int, int]]) -> list[Generation]:
    """The generations with these numbers of partitions and creation times."""
    found: list[Generation] = []
    for count, made in counts:
        found.append(Generation(found[-1].end if found else 0, count, made))
    return found


def eras_among(partitions: Iterable[PartitionOfGeneration]) -> list[Generation]:
    """The generations of a stream with these partitions, in order."""
    counts: dict[int, tuple[int, int]] = {}
    for one in partitions:
        count, made = counts.get(one.behind, (0, one.created_at if one.behind else 0))
        counts[one.behind] = count + 1, made
    return eras_of(counts.values())


#: The last time that shared memory can hold, in ns since 1970.
_LAST_TIME: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StreamCard:
    """The contents of the metadata file, without its header."""

    groups: dict[str, Any]
    #: All partitions that may have files. Those that are not in the last generation are sealed,
    #: and their files are complete.
    eras: list[Generation]


def write_card(
    disk: Disk,
    identity: StreamIdentity,
    card: StreamCard,
    guard: AbstractContextManager[object] | None = None,
) -> None:
    """Write the metadata file in the stream's directory, durably. Raises OSError.

    The file gets its name within ``guard``.
    """
    content: dict[str, Any] = {"groups": card.groups}
    if len(card.eras) > 1:  # else the options have the number
        content["eras"] = [(era.count, era.made) for era in card.eras]
    write_map(disk, CARD, UNFINISHED, identity.card(), content, guard)


def read_card(disk: Disk) -> tuple[FileHeader, StreamCard] | None:
    """Read the metadata file: its header and contents; None: there is none.

    Raises :class:`~shmq.FileError` and OSError.
    """
    found = read_map(disk, CARD, STREAM_CARD)
    if found is None:
        return None
    header, content, at = found
    path = str(disk.path(CARD))
    eras = content.get("eras") or [(header.options.get("partitions", 0), 0)]
    try:
        card = StreamCard(dict(content["groups"]), eras_of((int(n), int(made)) for n, made in eras))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise DamagedFile(path, at, f"the metadata cannot be read: {error}") from None
    if not all(map(_is_plausible, card.eras)) or card.eras[-1].end > MAX_PARTITIONS:
        raise DamagedFile(path, at, f"the partitions of the metadata are impossible: {eras}")
    return header, card


def _is_plausible(era: Generation) -> bool:
    return era.count >= 1 and 0 <= era.made <= _LAST_TIME
