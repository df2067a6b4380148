"""The limits of the disk: C loops of write and fdatasync."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from bench.disk import flushes, folder
from bench.disk.figures import BANDWIDTH, MEDIAN, SIZE
from bench.limits import Limit, play
from bench.row import RATE, SECONDS, Turn

#: The most batches of a turn.
MOST = 1 << 14
#: At the end of a file, or over zeros that are on disk.
How = Literal["append", "overwrite"]


class DiskLimit(Limit):
    """A loop in C on a file of the disk that is measured."""

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return super().missing() or folder.missing()


class Raw(DiskLimit):
    """A batch of messages with each write and fdatasync, at the end of a file or over zeros."""

    most = MOST

    def __init__(self, label: str, batch: int, how: How, note: str = "") -> None:
        self.label = label
        self.batch = batch
        self.how = how
        self.note = note

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""

        def turn(batches: int) -> dict[str, float]:
            messages = batches * self.batch
            with folder.scratch_folder() as where, flushes.at_least(batches):
                rate, median, _ = play("sync", where / "file", messages, self.batch, SIZE, self.how)
            return {"rate": rate, MEDIAN.key: median, SECONDS: messages / rate}

        yield turn


class GroupCommit(DiskLimit):
    """Processes that commit records one at a time, and share writes and syncs."""

    most = MOST

    def __init__(self, label: str, processes: int, how: How, note: str = "") -> None:
        self.label = label
        self.processes = processes
        self.how = how
        self.note = note

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""

        def turn(calls: int) -> dict[str, float]:
            with folder.scratch_folder() as where, flushes.at_least(calls):
                rate, median = play(
                    "group_commit", where / "file", self.processes, calls, SIZE, self.how
                )
            seconds = self.processes * calls / rate
            return {RATE.key: rate, MEDIAN.key: median, SECONDS: seconds}

        yield turn


class Sequential(DiskLimit):
    """One file written from beginning to end; synced once, as dd does, or after ``each`` bytes."""

    def __init__(self, total: int, each: int | None = None) -> None:
        self.total = total
        self.each = total if each is None else each
        often = "once" if each is None else f"every {each >> 20} MiB"
        self.label = f"C, one file, synced {often}"

    def tiny(self) -> Sequential:
        """See :class:`bench.row.Contestant`."""
        return Sequential(1 << 20, None if self.each == self.total else self.each)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        yield lambda _: {BANDWIDTH.key: self.bandwidth()}

    def bandwidth(self) -> float:
        """The bandwidth in MB/s."""
        with folder.scratch_folder() as where:
            (rate,) = play("sequential", where / "file", self.total, self.each)
        return rate / 1e6
