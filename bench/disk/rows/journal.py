"""A journal that confirms in memory, compared with the same queue without one."""

from __future__ import annotations

from bench.disk import journaled
from bench.row import Row, times
from bench.stream import Stream
from bench.way import Way

PAIRS: tuple[tuple[type[Way], type[Way]], ...] = (
    (journaled.JournalWriter, journaled.InMemory),
    (journaled.JournaledBatches, journaled.BatchesInMemory),
)


def _row(key: str, size: int, text: str) -> Row:
    return Row(
        key=key,
        title=f"{text}, a journal that confirms in memory, one producer, one consumer",
        contestants=[Stream(kind, size) for pair in PAIRS for kind in pair],
        bars=[times(ours.label, plain.label, 0.6) for ours, plain in PAIRS],
        limit="the writer, a third process on the same cores, and a slot that waits for the "
        "journal if it was observed there before it was acknowledged",
    )


def row() -> Row:
    """64 B."""
    return _row("disk-journal", 64, "64 B")


def kib_row() -> Row:
    """1 KiB."""
    return _row("disk-journal-kib", 1024, "1 KiB")
