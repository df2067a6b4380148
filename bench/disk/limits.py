"""The limits of the disk: C loops of write and fdatasync."""

from __future__ import annotations

from typing import Literal

from bench.compiled import no_compiler
from bench.disk import flushes, folder
from bench.disk.figures import MEDIAN, SIZE, TAIL
from bench.limits import Limit, play

#: The most messages of a turn.
MOST = 1 << 20


class Raw(Limit):
    """A batch of messages with each write and fdatasync, at the end of a file or over zeros."""

    def __init__(
        self, label: str, batch: int, how: Literal["append", "overwrite"], note: str = ""
    ) -> None:
        self.label = label
        self.batch = batch
        self.how = how
        self.note = note
        self.messages = 16 * batch

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return super().missing() or folder.missing()

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        while (rate := self.turn()["rate"]) * seconds / 4 > self.messages:
            self.messages *= 4
        batches = max(1, min(MOST, int(rate * seconds)) // self.batch)
        self.messages = batches * self.batch

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        least = self.messages // self.batch
        with folder.scratch_folder() as where, flushes.at_least(least):
            found = play("sync", where / "file", self.messages, self.batch, SIZE, self.how)
        return dict(zip(("rate", MEDIAN.key, TAIL.key), found, strict=True))


class Sequential:
    """One file written from beginning to end and synced once, as dd does."""

    def __init__(self, total: int) -> None:
        self.total = total

    def missing(self) -> str | None:
        """Why it cannot be measured here; None if it can."""
        return no_compiler() or folder.missing()

    def bandwidth(self) -> float:
        """The bandwidth in MB/s."""
        with folder.scratch_folder() as where:
            (rate,) = play("sequential", where / "file", self.total)
        return rate / 1e6
