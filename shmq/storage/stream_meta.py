"""The metadata file (card) of a durable stream: its options, generations and groups' offsets.

Its format is that of :mod:`shmq.storage.map_file`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from shmq.api.stream_options import MAX_PARTITIONS
from shmq.errors import DamagedFile
from shmq.storage.disk import Disk
from shmq.storage.file_header import STREAM_CARD, FileHeader
from shmq.storage.map_file import read_map, write_map
from shmq.storage.partition_generation import Generation, eras_of
from shmq.storage.stream_identity import StreamIdentity
from shmq.storage.stream_paths import CARD, UNFINISHED

__all__ = ["StreamCard", "read_card", "write_card"]

#: The last time that shared memory can hold, in ns since 1970.
_LAST_TIME: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StreamCard:
    """The contents of the metadata file, without its header."""

    groups: dict[str, Any]
    #: All partitions that may have files. Those that are not in the last generation are sealed,
    #: and their files are complete.
    eras: list[Generation]


def write_card(disk: Disk, identity: StreamIdentity, card: StreamCard) -> None:
    """Write the metadata file in the stream's directory, durably. Raises OSError."""
    told: dict[str, Any] = {"groups": card.groups}
    if len(card.eras) > 1:  # else the options have the number
        told["eras"] = [(era.count, era.made) for era in card.eras]
    write_map(disk, CARD, UNFINISHED, identity.card(), told)


def read_card(disk: Disk) -> tuple[FileHeader, StreamCard] | None:
    """Read the metadata file: its header and contents; None: there is none.

    Raises :class:`~shmq.FileError` and OSError.
    """
    found = read_map(disk, CARD, STREAM_CARD)
    if found is None:
        return None
    header, told, at = found
    path = str(disk.path(CARD))
    eras = told.get("eras") or [(header.options.get("partitions", 0), 0)]
    try:
        card = StreamCard(dict(told["groups"]), eras_of((int(n), int(made)) for n, made in eras))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise DamagedFile(path, at, f"the card cannot be read: {error}") from None
    if not all(map(_may_be, card.eras)) or card.eras[-1].end > MAX_PARTITIONS:
        raise DamagedFile(path, at, f"no stream has the partitions of the card: {eras}")
    return header, card


def _may_be(era: Generation) -> bool:
    return era.count >= 1 and 0 <= era.made <= _LAST_TIME
