"""What this process put last to each consumer of a queue, until the consumer has seen it.

A server confirms a put before it tells the consumers, which for a moment answer a pull that does
not wait as if nothing were there. So a get asks again after a put of its own process.
"""

from __future__ import annotations

from typing import ClassVar, Final

from shmq.native import _clock as time

#: After what time a consumer has seen each message, in seconds.
_SEEN_AFTER: Final = 5.0
#: The shortest time between two notifications of a consumer, in seconds.
_JUST: Final = 0.05


class LastPuts:
    """The puts to one queue, by all handles of this process. Used in the process's loop."""

    _of_process: ClassVar[dict[tuple[str, str], dict[str, tuple[int, float]]]] = {}

    def __init__(self, url: str, stream: str) -> None:
        #: The sequence number of the last put, and its time, by consumer.
        self._last = self._of_process.setdefault((url, stream), {})

    def note(self, subject: str, sequence: int) -> None:
        """A message was put; the last part of its subject is the name of its consumer."""
        self._last[subject.rpartition(".")[2]] = sequence, time.monotonic()

    def is_unseen(self, consumer: str) -> bool:
        """Whether the consumer may not know yet of the last put."""
        _, at = self._last.get(consumer, (0, 0.0))
        if at and time.monotonic() - at > _SEEN_AFTER:
            del self._last[consumer]
            return False
        return at > 0

    def is_just_put(self, consumer: str) -> bool:
        """Whether the consumer may be notified of the last put at this moment."""
        _, at = self._last.get(consumer, (0, -_JUST))
        return time.monotonic() - at < _JUST

    @property
    def of_groups(self) -> bool:
        """Whether consumers of groups may not know yet of a put."""
        return any(consumer.startswith("g") for consumer in self._last)

    def seen(self, consumer: str, sequence: int) -> None:
        """The consumer has handed out the message of that number."""
        if self._last.get(consumer, (sequence + 1, 0.0))[0] <= sequence:
            del self._last[consumer]

    def forget(self, consumer: str) -> None:
        """The consumer was given the time to see the last put."""
        self._last.pop(consumer, None)
