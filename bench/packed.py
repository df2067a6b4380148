"""Packed batches: bodies end to end in one buffer."""

from __future__ import annotations

from bench.way import Way

#: Messages in a packed batch.
PACK = 1024


class PackedWay(Way):
    """A way without a Python object per message; a round is compared as one buffer."""

    def packs(self, bodies: list[bytes]) -> list[bytes]:
        """The bodies of a round in buffers of :data:`PACK`."""
        return [b"".join(bodies[at : at + PACK]) for at in range(0, len(bodies), PACK)]

    def expected(self, bodies: list[bytes]) -> list[bytes]:
        """See :class:`bench.way.Way`."""
        return [b"".join(bodies)]
