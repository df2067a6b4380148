"""The progress of a job."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

__all__ = ["Progress"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a job has done since its start."""

    #: The newest finished batch; None for a job without batches.
    batch: int | None = None
    #: Rows since the start.
    rows: int = 0
    #: Rows per second in the newest batch.
    rate: float = 0.0
    #: Rows still to be read; None if unknown.
    backlog: int | None = None
    #: How long the newest batch took, in seconds.
    seconds: float = 0.0
    #: The job's other counts, by name.
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def after(self, told: Mapping[str, Any]) -> Self:
        """The progress after another batch, given Spark's progress JSON."""
        seconds = told["durationMs"].get("triggerExecution", 0) / 1000
        rows = sum(source["numInputRows"] for source in told["sources"])
        counts = dict(self.counts)
        for metrics in (told.get("observedMetrics") or {}).values():
            for name, value in metrics.items():
                counts[name] = counts.get(name, 0) + int(value or 0)
        return dataclasses.replace(
            self,
            batch=told["batchId"],
            rows=self.rows + rows,
            rate=rows / seconds if seconds else 0.0,
            backlog=_backlog(told),
            seconds=seconds,
            counts=counts,
        )


def _backlog(told: Mapping[str, Any]) -> int | None:
    """The rows that the sources report as unread."""
    known = [
        int(metrics["backlog"])
        for source in told["sources"]
        if "backlog" in (metrics := _map(source.get("latestOffset")))
    ]
    return sum(known) if known else None


def _map(value: Any) -> Mapping[str, Any]:
    """The value as a map, parsed if it is JSON text; empty if it is not a map."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
