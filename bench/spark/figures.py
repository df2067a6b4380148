"""The figures of the rows on Spark, and their sizes."""

from __future__ import annotations

from bench.row import Figure

RATE = Figure("rate", "rows/s")
WHOLE = Figure("whole", "rows/s, with the query's start and end")
MEDIAN = Figure("p50", "ms", higher_is_better=False)
TAIL = Figure("p99", "ms", higher_is_better=False)
JVM = Figure("jvm", "MB", higher_is_better=False)
PYTHON = Figure("python", "MB", higher_is_better=False)
FIRST = Figure("first", "ms", higher_is_better=False)
GROWTH = Figure("growth", "x", higher_is_better=False)

#: Bytes of a value.
SIZE = 100
#: Rows of a turn, and of a turn that only shows that everything works.
ROWS, TINY = 2_000_000, 3_000
#: Rows of a turn if a row takes less than a microsecond.
MORE_ROWS = 6_000_000
#: Rows while memory is watched.
MANY = 50_000_000
