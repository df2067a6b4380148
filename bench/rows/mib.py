"""1 MiB: in place, compared with iceoryx2's zero-copy; copied, compared with a C loop."""

from __future__ import annotations

from bench.limits import RateLimit
from bench.machine import two_cores
from bench.peers import iceoryx, shared_large
from bench.row import Row, times
from bench.stream import Stream

SIZE = 1 << 20
#: Bodies in a round: as many as wait at most.
COUNT = 4


def view_row() -> Row:
    """loan, view."""
    ours, theirs = shared_large.Loaned, iceoryx.Loaned
    return Row(
        key="mib-view",
        title="1 MiB, written in place and read in place",
        contestants=[Stream(kind, SIZE, COUNT) for kind in (ours, theirs)],
        bars=[times(ours.label, theirs.label, 1.0)],
        limit="the application's own writing of 1 MiB, which takes both of them the same time",
    )


def copy_row() -> Row:
    """put, get."""
    ours, again = shared_large.Copied, shared_large.CopiedAnew
    limit = RateLimit("C, a copy in and a copy out", "copy", SIZE, *two_cores())
    return Row(
        key="mib-copy",
        title="1 MiB, copied in and copied out",
        contestants=[*(Stream(kind, SIZE, COUNT) for kind in (ours, again)), limit],
        bars=[times(ours.label, limit.label, 0.8), times(again.label, limit.label, 0.8)],
        limit="two copies of 1 MiB, of lines that were last in the other core's cache",
    )
