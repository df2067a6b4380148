"""The plot of the delays: carriers by hours of the day."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from examples.flights.tally import Sums

#: From this mean delay in minutes on, a cell has the darkest color.
_DARKEST: Final = 40


def draw(delays: Mapping[tuple[str, int], Sums], names: Mapping[str, str], path: Path) -> None:
    """Write a PNG with the mean departure delay of each carrier in each hour.

    Hours without a departed flight stay empty. The carrier with the most flights is on top.
    Raises OSError if the file cannot be written.
    """
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    flights: dict[str, int] = {}
    for (carrier, _), sums in delays.items():
        flights[carrier] = flights.get(carrier, 0) + sums.flights
    carriers = sorted(flights, key=lambda carrier: (-flights[carrier], carrier))
    flown = [hour for (_, hour), sums in delays.items() if sums.departed] or [0]
    hours = range(min(flown), max(flown) + 1)
    means = [[_mean(delays.get((carrier, hour))) for hour in hours] for carrier in carriers]

    size = (4 + 0.45 * len(hours), 1.5 + 0.32 * len(carriers))
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    shown: Any = [[float("nan") if mean is None else mean for mean in row] for row in means]
    image = axes.imshow(shown, cmap="YlOrRd", vmin=0, vmax=_DARKEST, aspect="auto")
    for row, line in enumerate(means):
        for column, mean in enumerate(line):
            if mean is not None:
                colour = "white" if mean > 0.7 * _DARKEST else "black"
                axes.text(
                    column,
                    row,
                    str(round(mean)),
                    color=colour,
                    ha="center",
                    va="center",
                    fontsize=7,
                )
    axes.set_yticks(
        range(len(carriers)), [f"{names.get(carrier, '')} {carrier}" for carrier in carriers]
    )
    axes.set_xticks(range(len(hours)), [str(hour) for hour in hours])
    axes.set_xlabel("hour in which the flight was to leave")
    axes.set_title("Mean departure delay in minutes, New York 2013", loc="left")
    figure.colorbar(image, ax=axes, pad=0.01)
    figure.savefig(path, dpi=120, format="png")
    plt.close(figure)


def _mean(sums: Sums | None) -> float | None:
    return None if sums is None else sums.mean_departure_delay
