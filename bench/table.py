"""The printed table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bench.estimate import Estimate
from bench.mood import described
from bench.record import Entry, Record, RowRecord
from bench.row import TIMES, number
from bench.verdict import Met, Verdict

_MET: dict[Met, str] = {
    "met": "[green]met[/]",
    "missed": "[red]missed[/]",
    "open": "[yellow]open[/]",
    "not measured": "[yellow]not measured[/]",
    "for information": "",
}
_STYLE = {"shmq": "bold", "peer": "", "limit": "dim", "harness": "dim"}


def show(record: Record, console: Console) -> None:
    """Print every row: medians with their intervals; at the end the bars of all rows."""
    what = ", ".join(f"{value}" for value in record.machine.values())
    turns = f", turns of {record.turn * 1e3:.0f} ms" if record.turn else ""
    console.print(f"{what}; {record.visits} visits{turns}, {record.took:.0f} s in all")
    console.print(described(record.mood))
    for row in record.rows:
        console.print()
        console.print(_table(row))
    console.print()
    console.print(_bars(record))


def shown(estimate: Estimate, unit: str = "") -> str:
    """A median with its interval: ``1.2 (1.1 to 1.3)``; alone if there were too few turns."""
    ends = [estimate.low, estimate.high]
    if ends == [None, None]:
        return f"{number(estimate.median)}{unit}"
    low, high = ("?" if end is None else number(end) for end in ends)
    return f"{number(estimate.median)}{unit} ({low} to {high})"


def measured(verdict: Verdict) -> str:
    """What a bar was found to be: ``1.2 (1.1 to 1.3)``, and of which contestant."""
    if verdict.estimate is None:
        return ""
    if verdict.other:
        return f"{shown(verdict.estimate, f' {TIMES}')} {verdict.other}"
    return shown(verdict.estimate, f" {verdict.unit}".rstrip())


def _table(row: RowRecord) -> Table:
    crossing = f"; a cache line crosses in {shown(row.crossing)} ns" if row.crossing else ""
    table = Table(title=f"{row.title} ({row.key}{crossing})", title_justify="left", pad_edge=False)
    table.add_column("", no_wrap=True)
    for figure in row.figures:
        table.add_column(f"{figure.key}, {figure.unit}", justify="right", no_wrap=True)
    table.add_column("best turn", justify="right", no_wrap=True)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("")
    for entry in row.entries:
        table.add_row(entry.label, *_cells(entry, row), style=_STYLE[entry.role])
    return table


def _cells(entry: Entry, row: RowRecord) -> list[str]:
    found = [entry.figures.get(figure.key) for figure in row.figures]
    return [
        *("" if each is None else shown(each) for each in found),
        "" if entry.best is None else f"{entry.best:.2f} {TIMES}",
        "" if found[0] is None else str(found[0].turns),
        entry.missing or entry.note,
    ]


def _bars(record: Record) -> Table:
    table = Table(title="The bars", title_justify="left", pad_edge=False)
    for head in ("row", "shmq", "measured, with its 95 % interval", "bar", ""):
        table.add_column(head)
    for row in record.rows:
        for verdict in row.verdicts:
            met = _MET[verdict.met]
            table.add_row(row.title, verdict.ours, measured(verdict), verdict.bar, met)
    return table
