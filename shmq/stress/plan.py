"""The plan of a stress run: workers, duration, bodies, kills."""

from __future__ import annotations

import dataclasses

__all__ = ["LEAST_SIZE", "Plan"]

#: The size of the smallest body, in bytes: producer, number, time of the put, and checksum.
LEAST_SIZE = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many producers and consumers work, and for how long or how many messages."""

    producers: int = 2
    consumers: int = 2
    #: How long the producers put, in seconds; None if `messages` is the limit.
    seconds: float | None = 5.0
    #: How many messages are put in all.
    messages: int | None = None
    #: Bytes of a body, at least :data:`LEAST_SIZE`.
    size: int = 64
    #: Messages in one call; 1: `put`, `get` and `ack`, more: `put_many` and so on.
    batch: int = 1
    #: Whether consumers are killed at random, and others started in their place.
    kill: bool = False
    #: Whether the messages of each producer are a group.
    grouped: bool = False
    seed: int = 0

    @property
    def careful(self) -> bool:
        """Whether each step is written at once, so that it survives a kill."""
        return self.kill or self.grouped

    def share(self, producer: int) -> int | None:
        """How many messages the producer puts, the first producer being 1; None: no limit."""
        if self.messages is None:
            return None
        whole, rest = divmod(self.messages, self.producers)
        return whole + (producer <= rest)
