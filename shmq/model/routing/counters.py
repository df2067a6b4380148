"""The counters of a namespace's exchanges, which all its processes add to.

``exchanges.shmq@NAMESPACE@counts`` exists beside the file of the exchanges, and is
removed with it. It is a header and slots of 128 bytes:

    0   4   ``SHMN``
    4   4   the version, 1
    8   8   the number of slots in use; the bytes of all others are 0
  128       for each of 4096 slots:
        0   8   messages published to the exchange
        8   8   how many of them reached no queue or stream
       16   1   the length of the exchange's name; 0: the slot is free
       17       the name

Integers are little-endian. A slot belongs to an exchange as long as the exchange exists; slots are
assigned and reused under the registry lock. Publishers add to the first two words atomically,
without a lock. A slot is written before it is in use, so touching its memory cannot fail for lack
of space. Counting never fails: without this file, or without a free slot, nothing is counted.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shmq import api
from shmq.errors import ShmqError
from shmq.host.namespace.shm_files import refuse_foreign
from shmq.native import _core
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file

_MAGIC: Final = b"SHMN"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sIQ")
_SLOT: Final = 128
_NAME_AT: Final = 16
#: The most exchanges of a namespace that are counted; 512 KiB of memory.
_SLOTS: Final = 4096
_SIZE: Final = _SLOT * (1 + _SLOTS)
#: Where the number of slots in use is, in words of 64 bits.
_USED: Final = 1


class Counters:
    """The mapped file. Threads may share it; it is unmapped with its last reference."""

    def __init__(self, fd: int) -> None:
        reserve_standard()
        self._map = mmap.mmap(fd, _SIZE)
        self._words = memoryview(self._map).cast("Q")
        #: The position in `_words` of each exchange that was asked for; None: it is not counted.
        self._found: dict[str, int | None] = {}

    @classmethod
    def open(cls, path: Path) -> Counters | None:
        """Open the file at ``path``; return None if there is none or it cannot be used."""
        try:
            fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (OSError, ShmqError):
            return None
        try:
            refuse_foreign(fd, path)
            head = os.pread(fd, _HEAD.size, 0).ljust(_HEAD.size, b"\0")
            magic, version, used = _HEAD.unpack(head)
            sound = os.fstat(fd).st_size == _SIZE and used <= _SLOTS
            return cls(fd) if (magic, version) == (_MAGIC, _VERSION) and sound else None
        except (OSError, ValueError, ShmqError):
            return None
        finally:
            os.close(fd)

    # ---- counting ----

    def add(self, name: str, published: int, unrouted: int) -> None:
        """Count messages that were published to the exchange."""
        at = self._locate(name)
        if at is not None:
            _core.add_to_word(self._words, at, published)
            if unrouted:
                _core.add_to_word(self._words, at + 1, unrouted)

    def read(self, name: str) -> api.ExchangeStats:
        """Return the counts since the exchange was created."""
        at = self._locate(name)
        if at is None:
            return api.ExchangeStats()
        return api.ExchangeStats(published=self._words[at], unrouted=self._words[at + 1])

    def _locate(self, name: str) -> int | None:
        try:
            return self._found[name]
        except KeyError:
            slot = self._list_slots().get(_encode(name))
            found = self._found[name] = None if slot is None else slot * _SLOT // 8
            return found

    def _list_slots(self) -> dict[bytes, int]:
        """Return the slots in use, from 1 on, by the encoded names of their exchanges."""
        used = min(self._words[_USED], _SLOTS)
        data = self._map[: _SLOT * (1 + used)]
        slots = {}
        for slot in range(1, 1 + used):
            at = slot * _SLOT + _NAME_AT
            slots[data[at : at + 1 + data[at]]] = slot
        return slots

    # ---- assigning slots, under the registry lock ----

    @staticmethod
    def remove(path: Path) -> None:
        """Remove the file, in any state."""
        with contextlib.suppress(OSError):
            path.unlink()

    @classmethod
    def assign(cls, path: Path, name: str, has: Callable[[str], bool]) -> None:
        """Count the exchange from 0 on, if a slot is free; ``has(name)``: whether one exists."""
        with contextlib.suppress(OSError, ShmqError):
            counters = cls.open(path)
            if counters is None:
                _create(path)
                counters = cls.open(path)
            if counters is not None:
                counters._assign(path, name, has)

    def _assign(self, path: Path, name: str, has: Callable[[str], bool]) -> None:
        names, used = self._list_slots(), self._words[_USED]
        slot = names.get(_encode(name))
        if slot is None and used < _SLOTS:
            slot = used + 1
        if slot is None:
            slot = next(
                (at for it, at in names.items() if not has(it[1:].decode(errors="replace"))), None
            )
        if slot is None:
            return
        fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            for content in (b"", bytes(_NAME_AT) + _encode(name)):
                os.pwrite(fd, content.ljust(_SLOT, b"\0"), slot * _SLOT)
                _core.mark()
        finally:
            os.close(fd)
        self._words[_USED] = max(used, slot)
        _core.mark()


def _create(path: Path) -> None:
    """Create the file in place of one that cannot be used. Raises OSError."""
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = open_file(path, flags)
    try:
        os.ftruncate(fd, _SIZE)
        _core.mark()
        os.pwrite(fd, _HEAD.pack(_MAGIC, _VERSION, 0).ljust(_SLOT, b"\0"), 0)
        _core.mark()
    finally:
        os.close(fd)


def _encode(name: str) -> bytes:
    raw = name.encode()
    return bytes((len(raw),)) + raw
