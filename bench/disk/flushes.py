"""The kernel's count of the disk's flushes: without a flush, synced data is not safe.

Each sync flushes a block device with a volatile cache, and the kernel counts the flushes
(Documentation/block/stat.rst). Concurrent syncs may share a flush; consecutive ones never do. So
a program that confirms messages one after the other causes at least that many flushes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bench.disk import folder
from bench.stage import Failed

#: The place of the count in a device's ``stat``.
FIELD = 15


def count() -> int | None:
    """The flushes of the disk so far; None if the kernel does not count them here."""
    stat = _counting()
    return None if stat is None else _read(stat)


@contextlib.contextmanager
def at_least(least: int) -> Iterator[None]:
    """Raise Failed if the disk was flushed fewer times than that during the block."""
    before = count()
    yield
    after = count()
    if before is not None and after is not None and after - before < least:
        raise Failed(
            f"what was confirmed took {least} syncs, and the disk was flushed "
            f"{after - before} times"
        )


@cache
def _counting() -> Path | None:
    """The device's ``stat`` file, if it counts syncs."""
    with folder.scratch_folder() as where:
        stat = _device(where)
        if stat is None:
            return None
        before = _read(stat)
        for number in range(3):
            with (where / str(number)).open("wb") as file:
                file.write(b"something")
                file.flush()
                os.fdatasync(file)
        return stat if _read(stat) - before >= 3 else None


def _device(where: Path) -> Path | None:
    """The ``stat`` file of the whole disk below that folder: partitions do not count flushes."""
    number = where.stat().st_dev
    found = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not found.exists():
        return None
    found = found.resolve()
    if (found / "partition").exists():
        found = found.parent
    stat = found / "stat"
    return stat if stat.exists() and len(stat.read_text().split()) > FIELD else None


def _read(stat: Path) -> int:
    return int(stat.read_text().split()[FIELD])
