"""The rows over TCP, in the order of their table: one file per kind of work."""

from __future__ import annotations

from collections.abc import Callable

from bench.row import Row
from bench.tcp.rows import client, consume, event_loops, idle, local, mib, ping_pong, produce

TCP: tuple[Callable[[], Row], ...] = (
    produce.row,
    produce.eight_row,
    produce.batch_row,
    consume.row,
    consume.eight_row,
    ping_pong.one_core_row,
    ping_pong.two_cores_row,
    ping_pong.eight_row,
    client.one_core_row,
    client.two_cores_row,
    client.pipelined_row,
    client.batch_row,
    mib.row,
    mib.memory_row,
    idle.put_row,
    idle.got_row,
    local.row,
    event_loops.asyncio_one_core_row,
    event_loops.asyncio_two_cores_row,
    event_loops.uvloop_one_core_row,
    event_loops.uvloop_two_cores_row,
)
