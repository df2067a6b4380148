"""What is wrong with the disk of a queue that is to outlive the machine."""

from __future__ import annotations

from shmq.contract.stats import QueueStats

__all__ = ["journal_problem"]


def journal_problem(stats: QueueStats) -> str | None:
    """Why the queue is not being kept on disk now, and what to do about it; None if it is."""
    if stats.durability == "memory":
        return None
    counts = {
        "messages are not on disk": stats.journal_lag,
        "settled ones keep their space": stats.journal_waiting,
    }
    so_far = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    tail = f" ({so_far})" if so_far else ""
    if stats.journal_error is not None:
        return (
            f"the disk refuses what is to be kept: {stats.journal_error}{tail}; make room, or mend "
            f"it: it is written as soon as that works"
        )
    if not stats.journal_writer:
        return f"no persistence writer keeps it on disk{tail}: start `shmq serve` or `shmq persist`"
    return None
