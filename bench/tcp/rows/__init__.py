"""The rows over TCP, in the order of their table: one file a kind of work."""

from __future__ import annotations

from collections.abc import Callable

from bench.row import Row
from bench.tcp.rows import client, consume, idle, local, mib, ping_pong, produce

TCP: tuple[Callable[[], Row], ...] = (
    produce.row,
    produce.batch_row,
    consume.row,
    ping_pong.row,
    client.one_row,
    client.pipelined_row,
    client.batch_row,
    mib.row,
    mib.memory_row,
    idle.row,
    local.row,
)
