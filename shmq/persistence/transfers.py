"""Messages on their way between queues, of which each has a journal of its own.

The settlement of a message that was moved is held back until its copy is on the disk of the
queue it went to: whichever journal ends early, one of the two is there. If both are, the
copy counts.
"""

from __future__ import annotations

import threading
from typing import Protocol

from shmq.codec.codecs import unpack_properties
from shmq.errors import NoSuchQueue, SegmentError
from shmq.namespace.namespace import Namespace
from shmq.native import _core

__all__ = ["Transfers", "target_of"]


class JournalOfQueue(Protocol):
    """A queue with a journal that this process writes."""

    @property
    def name(self) -> str:
        """The queue's name."""

    @property
    def follower(self) -> _core.Follower:
        """What tells which copies are not on its disk yet."""

    def settle_arrived(self, target: str) -> bool:
        """Write the settlement of what has arrived; whether none is left to ``target``."""


def target_of(reason: int, meta: bytes, dead_letter: str | None) -> str | None:
    """Where a message was moved to: a dead letter to its queue, a redriven one back."""
    if reason:
        return dead_letter
    letter = unpack_properties(meta).get("dead")
    return letter["queue"] if letter else None


class Transfers:
    """Which queues of the namespace are followed, and what arrived there. For any thread."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._followed: dict[str, JournalOfQueue] = {}

    def enter(self, queue: JournalOfQueue) -> None:
        """The queue is followed from now on."""
        with self._lock:
            self._followed[queue.name] = queue

    def leave(self, queue: JournalOfQueue) -> None:
        """The queue is not followed any more."""
        with self._lock:
            if self._followed.get(queue.name) is queue:
                del self._followed[queue.name]

    def arrived(self, source: int, target: str | None, seqs: list[int]) -> set[int]:
        """Which of the messages ``seqs`` of the queue with the id ``source`` have arrived.

        All of them, where nothing keeps a journal of the target.
        """
        if target is None:
            return set(seqs)
        with self._lock:
            queue = self._followed.get(target)
        if queue is not None:
            return set(seqs) - queue.follower.copies_waiting(source, seqs)
        return set() if self._has_journal(target) else set(seqs)

    def settle_all(self, target: JournalOfQueue) -> bool:
        """Have what arrived at the ``target`` settled where it came from, on disk.

        Whether that was done: it is not where a source's disk refuses.
        """
        with self._lock:
            sources = [each for each in self._followed.values() if each is not target]
        return all(source.settle_arrived(target.name) for source in sources)

    def _has_journal(self, queue: str) -> bool:
        try:
            segment = self._namespace.open_segment(queue)
        except (NoSuchQueue, SegmentError):
            return False
        return bool(segment.options["durability"] == "journal")
