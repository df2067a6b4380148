"""Recovery of a queue whose memory is lost, from its journal files to the first get."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.disk import filled, folder
from bench.disk.figures import BANDWIDTH
from bench.disk.writer import alone, kept
from bench.row import RATE, Contestant, Role, Turn


class Recovered(Contestant):
    """A number of messages of one size; their files are still in the page cache."""

    role: Role = "shmq"

    def __init__(self, label: str, size: int, count: int) -> None:
        self.label = label
        self.size = size
        self.count = count

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return folder.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Recovered(self.label, self.size, min(self.count, 2000 if self.size < 4096 else 8))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        yield lambda _: self._measured()

    def _measured(self) -> dict[str, float]:
        room = filled.arena(self.size, self.count)
        with kept(durability="journal", capacity=self.count, arena_bytes=room) as made:
            alone(filled.fill, made.name, self.size, self.count)
            alone(filled.journaled, made.name)
            made.lose()
            taken = alone(filled.recover, made.name, made.writer.data)
            alone(filled.look, made.name, self.size, self.count)
        return {
            RATE.key: self.count * 1e9 / taken,
            BANDWIDTH.key: self.count * self.size * 1e3 / taken,
        }
