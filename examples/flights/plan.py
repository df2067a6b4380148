"""The plan of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

#: Flights acknowledged at a time, unless the run is short.
BATCH: Final = 256
#: How many batches of this size a producer puts before it waits for the disk.
STRIDE: Final = 16
#: A short run has at least this many batches, so that it has a half-way point.
PARTS: Final = 400


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run."""

    #: The file of flights.
    path: Path
    #: How many flights of the file, from the first on.
    flights: int
    namespace: str
    producers: int = 2
    consumers: int = 3
    #: Additional consumers over TCP.
    remote: int = 1
    #: Whether one consumer is killed when a quarter of the flights are counted, and a front
    #: end of the server when three quarters are.
    kill: bool = True
    #: Whether the queues have journals, and all shared memory and every process is lost when
    #: half of the flights are counted.
    lose: bool = True
    #: Whether all flights also go through a stream, which two groups read.
    groups: bool = True
    #: Whether Spark archives the counted flights and adds them up again.
    archive: bool = False
    #: Whether all flights also go from this host to a cluster of three servers, one of which is
    #: killed.
    cluster: bool = False

    @property
    def batch(self) -> int:
        """How many flights a consumer acknowledges at a time, at most."""
        return min(BATCH, self.flights // PARTS + 1)

    @property
    def stride(self) -> int:
        """How many flights a producer puts at most before it waits until they are on disk."""
        return STRIDE * self.batch

    def share(self, of: int) -> int:
        """How many flights the producer with that number, from 0, puts."""
        return len(range(of, self.flights, self.producers))
