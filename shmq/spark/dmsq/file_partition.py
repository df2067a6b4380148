"""A part of a queue's files that one task reads."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import InputPartition

from shmq.storage.queue_reader import Part

__all__ = ["Slice", "cut", "shares"]

#: A slice is not made smaller than this, in bytes of its records, nor need it be larger: each
#: walks over all of the queue's files, and holds an index of what is its own.
LEAST: Final = 16 << 20
MOST: Final = 256 << 20


@dataclasses.dataclass(frozen=True)
class Slice(InputPartition):
    """The messages of a queue with the sequence numbers ``first`` to ``last``."""

    queue: str
    #: The identity of the queue that was looked at.
    hash_key: int
    #: Its files.
    parts: tuple[Part, ...]
    first: int
    last: int
    #: Messages that are in the files, and have gone to another queue.
    gone: tuple[int, ...] = ()


def shares(sizes: Sequence[int], least: int | None) -> list[int]:
    """Into how many slices queues of so many bytes are cut: ``least`` or more of them in all.

    Without a least they are as many as this machine has cores, or a multiple, unless they get
    too small.
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
    """The numbers ``first`` to ``last`` in up to ``count`` ranges of about as many bytes.

    ``spread`` is how the bytes lie over the numbers:
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
