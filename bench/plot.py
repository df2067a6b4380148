"""The plots: one for each row, with a bar for each contestant's median."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.record import Record, RowRecord

_COLOURS = {"shmq": "#1b6ca8", "peer": "#9a9a9a", "limit": "#d9a441", "harness": "#cccccc"}


def draw(record: Record, folder: Path) -> list[str]:
    """Write a PNG for each row with figures; returns the names of the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for row in record.rows:
        if any(entry.missing is None for entry in row.entries):
            name = f"{row.key}.png"
            _draw(row, folder / name)
            written.append(name)
    return written


def _draw(row: RowRecord, path: Path) -> None:
    from matplotlib import pyplot as plt

    entries = [entry for entry in row.entries if entry.missing is None][::-1]
    height = 1.2 + 0.34 * len(entries)
    figure, all_axes = plt.subplots(
        1, len(row.figures), figsize=(9, height), squeeze=False, layout="constrained"
    )
    for place, what in enumerate(row.figures):
        axes: Any = all_axes[0][place]
        medians = [entry.median(what.key) for entry in entries]
        spread = [
            [m - min(entry.values[what.key]) for m, entry in zip(medians, entries, strict=True)],
            [max(entry.values[what.key]) - m for m, entry in zip(medians, entries, strict=True)],
        ]
        colours = [_COLOURS[entry.role] for entry in entries]
        axes.barh(range(len(entries)), medians, xerr=spread, color=colours, ecolor="#555555")
        axes.set_yticks(
            range(len(entries)), [entry.label for entry in entries] if not place else []
        )
        axes.set_xlabel(f"{what.key}, {what.unit}")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(row.title, x=0.01, ha="left")
    figure.savefig(path, dpi=120)
    plt.close(figure)
