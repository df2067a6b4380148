"""Shared by the tests of the demonstration: files of invented flights."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

#: A row of the file: carrier, tail number, departure delay, arrival delay.
Row = tuple[str, str, str, str]


@pytest.fixture
def flights_file(tmp_path: Path) -> Callable[[list[Row]], Path]:
    """Make a zipped table of flights, in the package's format, from rows.

    The flight in row N is scheduled for hour N modulo 24.
    """

    def make(rows: list[Row]) -> Path:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("year", "dep_delay", "arr_delay", "carrier", "tailnum", "hour"))
        table.writerows(
            ("2013", dep, arr, code, tail, place % 24)
            for place, (code, tail, dep, arr) in enumerate(rows)
        )
        path = tmp_path / "flights.csv.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("flights.csv", text.getvalue())
        return path

    return make
