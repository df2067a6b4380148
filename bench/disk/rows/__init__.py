"""The rows on disk, in the order of their table: one file a kind of work."""

from __future__ import annotations

from collections.abc import Callable

from bench.disk.rows import confirmed
from bench.row import Row

DISK: tuple[Callable[[], Row], ...] = (
    confirmed.row,
    confirmed.many_row,
)
