"""The stream of flights, keyed by carrier, and its producer."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import shmq
from examples.flights.flights import Flight, read_flights
from examples.flights.queues import PATIENCE

#: One record per flight, in the order of the file within each carrier.
CARRIERS: Final = "carriers"
#: An append waits for the groups: a flight stays until all groups have read it.
OPTIONS: Final[dict[str, Any]] = {"partitions": 4, "ring_bytes": 4 << 20, "overflow": "block"}
#: Flights appended at a time.
AT_ONCE: Final = 512


def append_flights(namespace: str, path: Path, limit: int) -> None:
    """Append the first ``limit`` flights of the file to the stream, with the carrier as key.

    So all flights of a carrier are in one partition, in order.
    """
    with shmq.connect(namespace) as broker, broker.stream(CARRIERS) as stream:
        flights = read_flights(path, limit=limit)
        while batch := list(itertools.islice(flights, AT_ONCE)):
            stream.append_many(
                map(_value, batch), keys=[flight.carrier for flight in batch], timeout=PATIENCE
            )


def _value(flight: Flight) -> list[Any]:
    return [flight.number, flight.carrier, flight.hour, flight.late, *flight.delays]
