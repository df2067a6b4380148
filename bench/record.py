"""The results of a run, and their file."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

from bench.row import Figure, Role, Verdict

#: The folder of the results; git ignores it.
RESULTS = Path(__file__).resolve().parent / "results"
#: The file of each table in it.
LOCAL_RESULTS, TCP_RESULTS = "results.json", "tcp.json"
DISK_RESULTS, SPARK_RESULTS = "disk.json", "spark.json"


@dataclasses.dataclass
class Entry:
    """A contestant's turns in a row: the value of each turn, by figure."""

    label: str
    role: Role
    note: str
    missing: str | None
    values: dict[str, list[float]]

    def median(self, key: str) -> float:
        """The median of a figure."""
        return statistics.median(self.values[key])


@dataclasses.dataclass
class RowRecord:
    """A row's entries and verdicts."""

    key: str
    title: str
    limit: str
    figures: list[Figure]
    entries: list[Entry]
    verdicts: list[Verdict]

    def entry(self, label: str) -> Entry:
        """The entry with that label. Raises LookupError if it was not measured."""
        for entry in self.entries:
            if entry.label == label and entry.missing is None:
                return entry
        raise LookupError(f"row {self.key!r} has no figures of {label!r}")


@dataclasses.dataclass
class Record:
    """A whole run."""

    machine: dict[str, str | int]
    repetitions: int
    seconds: float
    rows: list[RowRecord]

    def row(self, key: str) -> RowRecord:
        """The row with that key. Raises LookupError if it was not run."""
        for row in self.rows:
            if row.key == key:
                return row
        raise LookupError(f"the run has no row {key!r}")

    def write(self, path: Path) -> None:
        """Write the record as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read what :meth:`write` wrote."""
        found = json.loads(path.read_text())
        return cls(**{**found, "rows": [_row(row) for row in found["rows"]]})


def _row(found: dict[str, Any]) -> RowRecord:
    return RowRecord(
        **{
            **found,
            "figures": [Figure(**figure) for figure in found["figures"]],
            "entries": [Entry(**entry) for entry in found["entries"]],
            "verdicts": [Verdict(**verdict) for verdict in found["verdicts"]],
        }
    )
