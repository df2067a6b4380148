"""Walks through the records of a stream's segment files, as they lie.

``salts`` are the two that a file's records are sealed with: the file's own, of what frames
its commits, and the stream's, of the entries. Times are in ns since 1970.
"""

from typing import Any

#: How a walk or a check ends.
HOW: tuple[str, ...]

def walk(
    data: Any,
    at: int,
    salts: tuple[int, int],
    offset: int = 0,
    time: int = ...,
    stop_offset: int = ...,
    stop_time: int = ...,
    most_bytes: int = 0,
    most: int = 0,
    verify: bool = True,
) -> tuple[str, int, int, int, int]:
    """Pass whole records of the buffer ``data`` from the one ``at`` on.

    The first entry must have ``offset`` (0: any) and no time before ``time``. It stops at the
    entry that has ``stop_offset`` or begins behind it, if its time is not before
    ``stop_time``, and before the one that would make it more than ``most_bytes`` or ``most``
    offsets, once one was passed (0: no limit). Returns how it ended; where; the offset and
    the time of the entry it stopped at, or the next offset and the last time at the end; and
    how many offsets were passed.
    """

def find(
    data: Any, at: int, salts: tuple[int, int], offset: int, time: int, stop_offset: int
) -> tuple[int, int, int] | None:
    """The first whole entry from the byte ``at`` on, wherever it begins: where, offset, time.

    It is one that may come behind damage: it has ``offset`` or a later one before
    ``stop_offset``, and no time before ``time``. None: there is none.
    """

def measure(data: Any, at: int, salts: tuple[int, int], offset: int, stop_offset: int) -> int:
    """The bytes of the entries from ``offset`` on, which is ``at``, up to ``stop_offset``.

    Checksums are not compared; where something else stands there, of those before it.
    """

def check(
    data: Any, start: int, salts: tuple[int, int], offset: int, time: int = ...
) -> tuple[str, int, int, int, int, int, int, int, bool]:
    """Read all commits of a file from ``start`` on, the first of which has ``offset``.

    Returns how it ended; where what is whole ends; the next offset, the last time; how many
    offsets and commits there are, the last commit's number; where the damage is; and whether
    the file is closed. It ends with "end", "torn" or "damaged".
    """

def produced(
    data: Any,
    at: int,
    salts: tuple[int, int],
    offset: int,
    until: int,
    found: dict[int, tuple[int, int, int]],
) -> str:
    """Have ``found`` say of each producer which were its last records before ``until``.

    That is the sequence number and the offset of the first of them, and how many follow each
    other. The first entry has ``offset``. Returns how it ended: "end" or "damaged".
    """

def entries(data: Any) -> bytes:
    """The entries alone of what a walk has passed: all other records are left out."""
