"""Packed batches: one buffer in, one out."""

from __future__ import annotations

from bench.limits import RateLimit
from bench.machine import two_cores
from bench.peers import shared_packed, subetha
from bench.row import Row, beside, times
from bench.stream import Stream

#: The loops with which rates of 64 B are compared: an index for each message, and for 64.
RING_ONE = "C ring, an index a message"
RING_MANY = "C ring, an index for 64 messages"


def ring(label: str) -> RateLimit:
    """A ring in C with one sender and one receiver."""
    return RateLimit(label, "ring", 64 if label == RING_MANY else 1, *two_cores())


def row() -> Row:
    """64 B, 1,024 messages per buffer."""
    ours, theirs = shared_packed.Packed, subetha.Packed
    return Row(
        key="packed",
        title="64 B in packed batches of 1,024",
        contestants=[Stream(ours, 64), Stream(theirs, 64), ring(RING_MANY)],
        bars=[times(ours.label, theirs.label, 1.2), beside(ours.label, RING_MANY)],
        limit="two copies of the batch; a call a thousand messages is nothing",
    )
