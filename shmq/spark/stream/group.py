"""The group whose offsets follow a query: for its lag, and for who goes on after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import shmq
from shmq.spark.stream.offset import Progress

__all__ = ["Group"]


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A consumer group by name, whose committed offsets a query reads and writes."""

    name: str

    def committed(self, stream: shmq.Stream) -> Mapping[int, int]:
        """Where it stands, for each partition of which it has committed something."""
        committed = stream.group(self.name).committed()
        return {partition: at for partition, at in committed.items() if at is not None}

    def commit(self, stream: shmq.Stream, progress: Progress) -> None:
        """All before these offsets is done; nothing, if they are of another stream.

        Raises MemberFenced if the group has members: then these say how far it is.
        """
        if stream.identity == progress.identity:
            stream.group(self.name).reset(dict(progress.next), tuple(progress.next))
