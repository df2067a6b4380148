"""Consuming through an iterator with prefetch and gathered acknowledgements."""

from __future__ import annotations

from bench.peers import shared_queue
from bench.row import Row, at_least
from bench.stream import Stream


def row() -> Row:
    """64 B through consume(prefetch=64)."""
    one, many = shared_queue.Consumed, shared_queue.BatchesConsumed
    return Row(
        key="consume",
        title="64 B through consume(prefetch=64)",
        contestants=[Stream(one, 64), Stream(many, 64)],
        bars=[at_least(kind.label, 5e6) for kind in (one, many)],
        limit="a Message object and two calls a message in the consumer; the producer's put",
    )
