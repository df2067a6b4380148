"""Packed batches: one buffer in, one out."""

from __future__ import annotations

from bench.limits import RateLimit
from bench.machine import two_cores
from bench.peers import shared_packed, subetha
from bench.row import Row, at_least
from bench.stream import Stream


def row() -> Row:
    """64 B, 1,024 messages per buffer."""
    ours = shared_packed.Packed
    return Row(
        key="packed",
        title="64 B in packed batches of 1,024",
        contestants=[
            Stream(ours, 64),
            Stream(subetha.Packed, 64),
            RateLimit("C ring, an index a message", "ring", 1, *two_cores()),
            RateLimit("C ring, an index for 64 messages", "ring", 64, *two_cores()),
        ],
        bars=[at_least(ours.label, 30e6)],
        limit="two copies of the batch; a call a thousand messages is nothing",
    )
