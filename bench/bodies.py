"""The bodies that are sent, and the check of those that arrive.

The bodies are made before the clock starts. The received bodies of each round are compared with
them, byte by byte. A message that is lost, duplicated, reordered or damaged makes the two lists
differ.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

#: Different bodies in a round. Together they fit into a core's second-level cache.
ROUND = 1024


class Wrong(Exception):
    """The received bodies differ from those that were sent."""


def make(size: int, count: int = ROUND) -> list[bytes]:
    """``count`` different bodies of ``size`` bytes, the same in every process."""
    source = random.Random(size)
    width = min(size, 4)
    return [
        number.to_bytes(width, "little") + source.randbytes(size - width) for number in range(count)
    ]


def check(received: Sequence[object], sent: Sequence[bytes]) -> None:
    """Raise :class:`Wrong` with the place of the difference, unless both are equal."""
    if received == sent:
        return
    if len(received) != len(sent):
        raise Wrong(f"{len(received)} messages arrived where {len(sent)} were sent")
    places = {body: place for place, body in enumerate(sent)}
    for place, (found, expected) in enumerate(zip(received, sent, strict=True)):
        if found == expected:
            continue
        if isinstance(found, bytes) and found in places:
            raise Wrong(f"message {places[found]} of a round arrived in place of message {place}")
        raise Wrong(f"message {place} of a round arrived with other bytes than were sent")
