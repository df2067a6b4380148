"""How much is written at a time, and when a file is long enough."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """In bytes. The defaults are what a writer uses."""

    #: A segment that has as much is closed behind its last commit.
    segment: int = 64 << 20
    #: Zeros that are written ahead of small commits, at most; 0: none.
    ahead: int = 1 << 20
    #: What is collected for one commit, but for a message that is longer.
    commit: int = 8 << 20
    #: A stream's commit of as many bytes is on its way before all of it is known to be sound.
    early: int = 1 << 20
    #: What of a snapshot is copied out of the queue at a time.
    chunk: int = 1 << 20
