"""The limits of the disk: C loops of write and fdatasync."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from bench.disk import flushes, folder
from bench.disk.figures import BANDWIDTH, MEDIAN, SIZE
from bench.limits import Limit, play
from bench.row import SECONDS, Turn

#: The most batches of a turn.
MOST = 1 << 14


class Raw(Limit):
    """A batch of messages with each write and fdatasync, at the end of a file or over zeros."""

    most = MOST

    def __init__(
        self, label: str, batch: int, how: Literal["append", "overwrite"], note: str = ""
    ) -> None:
        self.label = label
        self.batch = batch
        self.how = how
        self.note = note

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return super().missing() or folder.missing()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""

        def turn(batches: int) -> dict[str, float]:
            messages = batches * self.batch
            with folder.scratch_folder() as where, flushes.at_least(batches):
                rate, median, _ = play("sync", where / "file", messages, self.batch, SIZE, self.how)
            return {"rate": rate, MEDIAN.key: median, SECONDS: messages / rate}

        yield turn


class Sequential(Limit):
    """One file written from beginning to end and synced once, as dd does."""

    label = "C, one file, synced once"

    def __init__(self, total: int) -> None:
        self.total = total

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return super().missing() or folder.missing()

    def tiny(self) -> Sequential:
        """See :class:`bench.row.Contestant`."""
        return Sequential(1 << 20)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        yield lambda _: {BANDWIDTH.key: self.bandwidth()}

    def bandwidth(self) -> float:
        """The bandwidth in MB/s."""
        with folder.scratch_folder() as where:
            (rate,) = play("sequential", where / "file", self.total)
        return rate / 1e6
