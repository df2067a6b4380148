"""The figures of the rows on disk, and the sizes that they share."""

from __future__ import annotations

from bench.row import Figure

#: Bytes of a body, unless a row says otherwise.
SIZE = 128
#: Messages of a sync, of a pipeline and of a transaction, if there are several.
BATCH = 64

MEDIAN = Figure("p50", "µs", higher_is_better=False)
BANDWIDTH = Figure("bandwidth", "MB/s")
