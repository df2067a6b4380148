"""Problems with the disk of a durable queue."""

from __future__ import annotations

from typing import Final

from shmq.api.stats import QueueStats

#: What to do about each problem.
FREE_SPACE: Final = "free space or repair it: writing continues as soon as it works"
START_WRITER: Final = "start `shmq serve` or `shmq persist`"


def journal_problem(stats: QueueStats) -> str | None:
    """Why the queue is not being written to disk now, and what to do about it; None if it is."""
    so_far = unwritten(stats.journal_lag, stats.journal_waiting)
    return why_unkept(stats.durability, stats.journal_error, stats.journal_writer, so_far)


def unwritten(lag: int, waiting: int) -> str:
    """A text with the numbers of put and settled messages that wait for the disk, or ""."""
    counts = {"not on disk": lag, "settled, and keeping their slots until that is on disk": waiting}
    text = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"messages: {text}" if text else ""


def why_unkept(durability: str, error: str | None, writer: bool, so_far: str = "") -> str | None:
    """The same for a queue from its disk's ``error`` and whether it has a ``writer``."""
    tail = f" ({so_far})" if so_far else ""
    if durability == "memory":
        return None
    if error is not None:
        return f"the disk refuses writes: {error}{tail}; {FREE_SPACE}"
    if not writer:
        return f"no persistence writer runs for it{tail}: {START_WRITER}"
    return None
