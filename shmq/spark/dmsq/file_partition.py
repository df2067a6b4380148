"""The part of a queue's files that one task reads."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import InputPartition

from shmq.storage.queue_reader import Part

__all__ = ["Slice", "cut", "shares"]

#: The smallest and a sufficient size of a slice, in bytes of its records. A task walks over all
#: files of the queue, whatever its slice, and holds an index of its slice.
LEAST: Final = 16 << 20
MOST: Final = 256 << 20


@dataclasses.dataclass(frozen=True)
class Slice(InputPartition):
    """The messages of a queue with the sequence numbers ``first`` to ``last``."""

    queue: str
    #: The queue's identity when the read was planned.
    hash_key: int
    #: Its files.
    parts: tuple[Part, ...]
    first: int
    last: int
    #: Messages that are still in the files but were moved to another queue.
    gone: tuple[int, ...] = ()


def shares(sizes: Sequence[int], least: int | None) -> list[int]:
    """How many slices each queue, given its size in bytes, is cut into: ``least`` or more in all.

    Without ``least`` there are as many slices as this machine has cores, or a multiple, unless
    they would be too small.
    """
    total = sum(sizes)
    cores = len(os.sched_getaffinity(0))
    wanted = least or -(-max(1, total) // (MOST * cores)) * cores
    smallest = 1 if least else LEAST
    return [
        max(1, min(-(-wanted * size // total) if total else 1, size // smallest)) for size in sizes
    ]


def cut(first: int, last: int, spread: tuple[int, int, list[int]], count: int) -> list[
    tuple[int, int]
]:  # fmt: skip
    """The numbers ``first`` to ``last`` in up to ``count`` ranges of about equal size in bytes.

    ``spread`` is the distribution of the bytes over the numbers:
    :meth:`~shmq.storage.queue_files.QueueFiles.spread`.
    """
    least, width, sums = spread
    found: list[tuple[int, int]] = []
    begin, so_far, total = first, 0, sum(sums)
    for place, size in enumerate(sums):
        so_far += size
        end = least + (place + 1) * width - 1
        whole = so_far * count >= total * (len(found) + 1)
        if whole and begin <= end < last and len(found) < count - 1:
            found.append((begin, end))
            begin = end + 1
    return [*found, (begin, last)]
