"""The history of a data directory: which memory its files continue, and where they have moved.

``writer.history`` has two slots of 12 KiB, which are written in turn, so that a change needs no
room on a full disk, and a torn one leaves the slot before. A slot is one line, the CRC-32 of a JSON
object in hexadecimal digits and the object, then zeros. The slot with the highest
``number`` counts. The other members:

``memory``
    the number of the memory (`Processes.memory`) whose queues and streams the files continue;
    0: none, or it is not known.
``earlier``
    the numbers of the memories before that one, oldest first: each reboot makes a new one. A
    directory whose ``memory`` is among those of another is an older copy of it.
``moving_from``
    the directory that the files are being moved from, until that is complete; or null.
``moved_to``
    the directory that the files were moved to; or null.

The writer changes it before any other file. A file that cannot be read counts as missing: then
whatever is both in memory and in the directory is set aside on disk.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

from shmq.disk.storage.disk import Disk, opened, read_whole, replace_file, write_whole

HISTORY: Final = "writer.history"
_UNFINISHED: Final = ".writer.history.tmp"
_SLOT: Final = 12 << 10
#: The most earlier memories that are stored.
_MOST: Final = 100


class History(NamedTuple):
    """What `writer.history` says; the defaults are those of a directory without one."""

    memory: int = 0
    earlier: tuple[int, ...] = ()
    moving_from: Path | None = None
    moved_to: Path | None = None

    def joined(self, memory: int) -> History:
        """The history of these files from now on, where they continue that memory."""
        if memory == self.memory:
            return self._replace(moved_to=None)
        earlier = (*self.earlier, self.memory)[-_MOST:] if self.memory else self.earlier
        return self._replace(memory=memory, earlier=earlier, moved_to=None)


def read_history(disk: Disk) -> History:
    """The directory's history."""
    return _read(disk)[1]


def _read(disk: Disk) -> tuple[int, History]:
    """The number of the slot that counts, and what it says; 0: none counts."""
    try:
        raw = read_whole(disk, HISTORY)
    except OSError:
        return 0, History()
    slots = (_unpack(raw[at : at + _SLOT]) for at in (0, _SLOT))
    return max((slot for slot in slots if slot is not None), default=(0, History()), key=_number)


def _number(slot: tuple[int, History]) -> int:
    return slot[0]


def _unpack(slot: bytes) -> tuple[int, History] | None:
    crc, _, line = slot.partition(b"\n")[0].partition(b" ")
    if crc != b"%08x" % zlib.crc32(line):
        return None
    try:
        members: dict[str, Any] = json.loads(line.decode("utf-8", "surrogateescape"))
        memory, *earlier = (int(number) for number in (members["memory"], *members["earlier"]))
        moving_from, moved_to = (
            None if path is None else Path(path)
            for path in (members["moving_from"], members["moved_to"])
        )
        return int(members["number"]), History(memory, tuple(earlier), moving_from, moved_to)
    except (ValueError, LookupError, TypeError):
        return None


def write_history(disk: Disk, history: History) -> None:
    """Replace the directory's history, durably. Raises OSError."""
    number = _read(disk)[0] + 1
    slot = _pack(number, history)
    at = number % 2 * _SLOT
    if HISTORY not in disk.names():
        whole = b"\0" * at + slot + b"\0" * (_SLOT - at)
        replace_file(disk, HISTORY, _UNFINISHED, [whole])
        return
    with opened(disk, HISTORY) as file:
        write_whole(disk, file, [slot], at)
        disk.sync(file)


def _pack(number: int, history: History) -> bytes:
    members = {
        "number": number,
        "memory": history.memory,
        "earlier": history.earlier,
        "moving_from": _format_path(history.moving_from),
        "moved_to": _format_path(history.moved_to),
    }
    line = json.dumps(members, ensure_ascii=False).encode("utf-8", "surrogateescape")
    slot = b"%08x %b\n" % (zlib.crc32(line), line)
    if len(slot) > _SLOT:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return slot.ljust(_SLOT, b"\0")


def _format_path(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)
