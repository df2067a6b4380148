"""What is to be done to the queue."""

from __future__ import annotations

import dataclasses

__all__ = ["LEAST_SIZE", "Plan"]

#: The least body: its producer, its number, when it was put, and its checksum, in bytes.
LEAST_SIZE = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """So many producers and consumers, for so long or so many messages."""

    producers: int = 2
    consumers: int = 2
    #: How long the producers put, in seconds; None where `messages` ends them.
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
        """Whether each step is put down when it is made, so that it outlives a kill."""
        return self.kill or self.grouped

    def share(self, producer: int) -> int | None:
        """How many messages the producer, 1 being the first, is to put; None: no limit."""
        if self.messages is None:
            return None
        whole, rest = divmod(self.messages, self.producers)
        return whole + (producer <= rest)
