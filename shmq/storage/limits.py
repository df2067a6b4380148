"""The sizes of writes and files."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes. The defaults are what a writer uses."""

    #: A segment of this length is closed after its last commit.
    segment: int = 64 << 20
    #: The most zeros that are written ahead of small commits; 0: none.
    ahead: int = 1 << 20
    #: The most that is collected for one commit, except a longer message.
    commit: int = 8 << 20
    #: A stream's commit from this length on is written before its records are checked.
    early: int = 1 << 20
    #: How much a snapshot copies out of the queue at a time.
    chunk: int = 1 << 20
