"""The printed table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bench.record import Record, RowRecord
from bench.row import number

_MET = {True: "[green]met[/]", False: "[red]missed[/]", None: "[yellow]not measured[/]"}
_STYLE = {"shmq": "bold", "peer": "", "limit": "dim", "harness": "dim"}


def show(record: Record, console: Console) -> None:
    """Print every row: medians with minimum and maximum, then the bars."""
    what = ", ".join(f"{value}" for value in record.machine.values())
    each = f" of {record.seconds:g} s" if record.seconds else ""
    console.print(f"{what}; {record.repetitions} repetitions{each}, interleaved")
    for row in record.rows:
        console.print()
        console.print(_table(row))
        for verdict in row.verdicts:
            console.print(f"  {_MET[verdict.met]}  {verdict.bar}: {verdict.measured}")


def _table(row: RowRecord) -> Table:
    table = Table(title=f"{row.title} ({row.key})", title_justify="left", pad_edge=False)
    table.add_column("", no_wrap=True)
    for figure in row.figures:
        table.add_column(f"{figure.key}, {figure.unit}", justify="right", no_wrap=True)
        table.add_column("least", justify="right", no_wrap=True)
        table.add_column("most", justify="right", no_wrap=True)
    table.add_column("")
    for entry in row.entries:
        cells = [""] * (3 * len(row.figures))
        if entry.missing is None:
            cells = [
                number(value)
                for figure in row.figures
                for values in [entry.values[figure.key]]
                for value in (entry.median(figure.key), min(values), max(values))
            ]
        note = entry.missing or entry.note
        table.add_row(entry.label, *cells, note, style=_STYLE[entry.role])
    return table
