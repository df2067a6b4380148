"""The results of a run, and the file in which they are recorded.

The file is small and kept with the sources: the tables of README.md and
docs/internals/performance.md are written from it, and a test compares them.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from bench.estimate import Estimate
from bench.row import Figure, Role
from bench.verdict import Verdict

#: The recorded results of all tables.
RECORDED = Path(__file__).resolve().parent / "recorded.json"
#: Significant digits of a recorded number.
DIGITS = 4


@dataclasses.dataclass(frozen=True)
class Entry:
    """A contestant in a row: the estimate of each figure."""

    label: str
    role: Role
    note: str
    missing: str | None
    figures: dict[str, Estimate]
    #: Its best turn divided by its median one, in the row's first figure.
    best: float | None


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The ratio of two contestants' figures, from pairs of turns."""

    ours: str
    other: str
    key: str
    estimate: Estimate


@dataclasses.dataclass(frozen=True)
class RowRecord:
    """A row's entries, ratios and verdicts, and the machine's mood meanwhile."""

    key: str
    title: str
    limit: str
    figures: list[Figure]
    entries: list[Entry]
    ratios: list[Ratio]
    verdicts: list[Verdict]
    #: What a cache line took from one core to the other, in ns, before and after each visit.
    crossing: Estimate | None

    def entry(self, label: str) -> Entry:
        """The entry with that label. Raises LookupError if it was not measured."""
        for entry in self.entries:
            if entry.label == label and entry.missing is None:
                return entry
        raise LookupError(f"row {self.key!r} has no figures of {label!r}")


@dataclasses.dataclass(frozen=True)
class Record:
    """A whole run of a table."""

    machine: dict[str, str | int]
    mood: dict[str, float]
    visits: int
    #: Seconds of a turn, and of the whole run.
    turn: float
    took: float
    rows: list[RowRecord]

    def row(self, key: str) -> RowRecord:
        """The row with that key. Raises LookupError if it was not run."""
        for row in self.rows:
            if row.key == key:
                return row
        raise LookupError(f"the run has no row {key!r}")

    @classmethod
    def of(cls, found: dict[str, Any]) -> Record:
        """The record of what :func:`write` wrote."""
        return cls(**{**found, "rows": [_row(row) for row in found["rows"]]})


def read(path: Path = RECORDED) -> dict[str, Record]:
    """The recorded tables, by name; none if no file exists."""
    if not path.exists():
        return {}
    return {name: Record.of(found) for name, found in json.loads(path.read_text()).items()}


def write(tables: dict[str, Record], path: Path = RECORDED) -> None:
    """Write the tables as JSON, a row of a table in a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = ",\n".join(f"{json.dumps(name)}: {_text(table)}" for name, table in tables.items())
    path.write_text(f"{{\n{text}\n}}\n")


def _text(table: Record) -> str:
    found = _rounded(dataclasses.asdict(table))
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in found.pop("rows"))
    head = json.dumps(found, ensure_ascii=False)
    return f'{head[:-1]}, "rows": [\n{rows}\n]}}'


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _row(found: dict[str, Any]) -> RowRecord:
    return RowRecord(
        **{
            **found,
            "figures": [Figure(**figure) for figure in found["figures"]],
            "entries": [_entry(entry) for entry in found["entries"]],
            "ratios": [
                Ratio(**{**ratio, "estimate": Estimate(**ratio["estimate"])})
                for ratio in found["ratios"]
            ],
            "verdicts": [
                Verdict(**{**verdict, "estimate": _estimate(verdict["estimate"])})
                for verdict in found["verdicts"]
            ],
            "crossing": _estimate(found["crossing"]),
        }
    )


def _entry(found: dict[str, Any]) -> Entry:
    figures = {key: Estimate(**estimate) for key, estimate in found["figures"].items()}
    return Entry(**{**found, "figures": figures})


def _estimate(found: dict[str, Any] | None) -> Estimate | None:
    return Estimate(**found) if found else None
