"""What the kernel counts of the disk's flushes: without them, nothing that was synced is safe.

Block devices with a cache that a power cut empties are flushed by each sync, and the kernel
counts it (Documentation/block/stat.rst). Syncs that run at the same time may share a flush; one
that begins when another has ended never does. So whoever confirms one message behind the other
has at least as many flushes.
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
    """The flushes of the disk so far; None: nobody counts them here."""
    stat = _counting()
    return None if stat is None else _read(stat)


@contextlib.contextmanager
def at_least(least: int) -> Iterator[None]:
    """Raise Failed if the disk was not flushed so often while the block took."""
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
    """The device's figures, if a sync is seen in them."""
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
    """The ``stat`` of the whole disk below that folder: those of its parts count no flushes."""
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
