"""A table as a picture by matplotlib: for each row the medians as bars, with their intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from bench.record import Entry, Record, RowRecord
from bench.row import Role

_COLOURS: Final[dict[Role, str]] = {
    "shmq": "#0b62c4",
    "peer": "#b2520a",
    "limit": "#888888",
    "harness": "#bbbbbb",
}
#: The height of a bar, and of what is around the bars of a row, in inches.
_BAR: Final = 0.26
_AROUND: Final = 0.9


def figure(record: Record, path: Path) -> None:
    """Write the picture to a file, in the format of its suffix.

    Raises ImportError without matplotlib, ValueError for an unknown format, and OSError.
    """
    from matplotlib.figure import Figure

    rows = [row for row in record.rows if _measured(row)]
    heights = [len(_measured(row)) * _BAR + _AROUND for row in rows] or [_AROUND]
    made = Figure(figsize=(12, sum(heights)), layout="constrained")
    made.suptitle(", ".join(f"{value}" for value in record.machine.values()), fontsize=8)
    if rows:
        grid = made.subplots(len(rows), squeeze=False, gridspec_kw={"height_ratios": heights})
        for axes, row in zip(grid[:, 0], rows, strict=True):
            _draw(axes, row)
    made.savefig(path)


def _measured(row: RowRecord) -> list[Entry]:
    """The entries that have the row's first figure, in the table's order."""
    return [entry for entry in row.entries if row.figures[0].key in entry.figures]


def _draw(axes: Any, row: RowRecord) -> None:
    figure, entries = row.figures[0], _measured(row)
    found = [entry.figures[figure.key] for entry in entries]
    medians = [each.median for each in found]
    below = [each.median - (each.median if each.low is None else each.low) for each in found]
    above = [(each.median if each.high is None else each.high) - each.median for each in found]
    axes.barh(
        [entry.label for entry in entries],
        medians,
        xerr=[[max(each, 0) for each in below], [max(each, 0) for each in above]],
        color=[_COLOURS[entry.role] for entry in entries],
        ecolor="#222222",
    )
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    better = "more" if figure.higher_is_better else "less"
    axes.set_title(f"{row.title}: {figure.key}, {figure.unit} ({better} is better)", fontsize=8)
    axes.tick_params(labelsize=8)
