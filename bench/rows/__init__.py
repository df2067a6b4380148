"""The rows for shared memory, in the order of their table: one file per kind of work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from bench.row import Row
from bench.rows import (
    batches,
    console,
    crowd,
    fan_out,
    growth,
    harness,
    memory,
    mib,
    one_call,
    packed,
    rebalance,
    recovery,
    request_reply,
    round_trip,
    routing,
    start,
    streams,
)

LOCAL: tuple[Callable[[], Row], ...] = (
    one_call.row,
    batches.row,
    packed.row,
    one_call.kib_row,
    batches.kib_row,
    mib.view_row,
    mib.copy_row,
    round_trip.one_core_row,
    round_trip.two_cores_row,
    round_trip.spinning_row,
    request_reply.row,
    growth.backlog_row,
    growth.groups_row,
    growth.delayed_row,
    crowd.row,
    routing.row,
    streams.append_row,
    streams.batches_row,
    streams.alone_row,
    streams.readers_row,
    fan_out.row,
    growth.queues_row,
    recovery.row,
    start.start_row,
    start.objects_row,
    console.row,
    rebalance.row,
    memory.row,
    harness.row,
)


def rows(
    only: Sequence[str] | None = None,
    contestant: str | None = None,
    table: Sequence[Callable[[], Row]] = LOCAL,
) -> list[Row]:
    """All rows of the table, or those with the keys in ``only``.

    ``contestant`` keeps only contestants whose label contains it. Raises LookupError for an
    unknown key.
    """
    found = [make() for make in table]
    if only:
        keys = [row.key for row in found]
        for key in only:
            if key not in keys:
                raise LookupError(f"there is no row {key!r}: the rows are {', '.join(keys)}")
        found = [row for row in found if row.key in only]
    if contestant:
        found = [
            dataclasses.replace(
                row, contestants=[c for c in row.contestants if contestant in c.label]
            )
            for row in found
        ]
        found = [row for row in found if row.contestants]
    return found
