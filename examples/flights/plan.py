"""What a run of the job is to be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

__all__ = ["Plan"]

#: Flights acknowledged at a time, unless the run is short.
BATCH: Final = 256
#: So many times as many a producer puts before it waits for the disk.
STRIDE: Final = 16
#: A short run has at least so many batches, so that its half-way is a point within it.
PARTS: Final = 400


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run."""

    #: The file of flights.
    path: Path
    #: How many of its flights, from the first on.
    flights: int
    namespace: str
    producers: int = 2
    consumers: int = 3
    #: Consumers beside those, which come over TCP.
    remote: int = 1
    #: Whether one consumer is killed when a quarter of the flights are counted, and a front
    #: end of the server when three quarters are.
    kill: bool = True
    #: Whether the queues have journals, and all shared memory and every process is lost when
    #: half of the flights are counted.
    lose: bool = True
    #: Whether all flights go through a stream, too, which two groups read.
    groups: bool = True
    #: Whether the flights that are counted are archived by Spark, and added up again.
    archive: bool = False

    @property
    def batch(self) -> int:
        """How many flights a consumer acknowledges at a time, at most."""
        return min(BATCH, self.flights // PARTS + 1)

    @property
    def stride(self) -> int:
        """How many flights a producer puts at most before it waits until they are on disk."""
        return STRIDE * self.batch

    def share(self, of: int) -> int:
        """How many of the flights are the producer's of that number, from 0."""
        return len(range(of, self.flights, self.producers))
