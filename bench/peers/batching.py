"""A round cut into batches."""

from __future__ import annotations

from bench.way import BATCH


def batches_of(bodies: list[bytes]) -> list[list[bytes]]:
    """The bodies in lists of :data:`bench.way.BATCH`; the last one may be shorter."""
    return [bodies[at : at + BATCH] for at in range(0, len(bodies), BATCH)]
