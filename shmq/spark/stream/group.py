"""The consumer group that tracks a query's offsets: for its lag, and for its successors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import shmq
from shmq.spark.stream.offset import Progress

__all__ = ["Group"]


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A consumer group whose committed offsets a query reads and writes."""

    name: str

    def committed(self, stream: shmq.Stream) -> Mapping[int, int]:
        """The committed offset of each partition that has one."""
        committed = stream.group(self.name).committed()
        return {partition: at for partition, at in committed.items() if at is not None}

    def commit(self, stream: shmq.Stream, progress: Progress) -> None:
        """Commit these offsets, unless they belong to another stream.

        Raises MemberFenced if the group has members: only members may commit then.
        """
        if stream.identity == progress.identity:
            stream.group(self.name).reset(dict(progress.next), tuple(progress.next))
