"""Messages that move between queues with separate journals.

The settlement of a moved message is not written until its copy is in the target queue's journal.
So whichever journal loses its end, one of the two survives. If both do, the copy counts.
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
        """Knows which copies are not in its journal yet."""

    def settle_arrived(self, target: str) -> bool:
        """Settle what has arrived at ``target``, on disk; return false if the disk refuses."""


def target_of(reason: int, meta: bytes, dead_letter: str | None) -> str | None:
    """The queue a message was moved to: a dead letter to ``dead_letter``, a redriven one back."""
    if reason:
        return dead_letter
    letter = unpack_properties(meta).get("dead")
    return letter["queue"] if letter else None


class Transfers:
    """Knows the journaled queues of the namespace, and what arrived there. For any thread."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._followed: dict[str, JournalOfQueue] = {}

    def enter(self, queue: JournalOfQueue) -> None:
        """Add a queue whose journal this process writes."""
        with self._lock:
            self._followed[queue.name] = queue

    def leave(self, queue: JournalOfQueue) -> None:
        """Remove the queue."""
        with self._lock:
            if self._followed.get(queue.name) is queue:
                del self._followed[queue.name]

    def arrived(self, source: int, target: str | None, seqs: list[int]) -> set[int]:
        """Which of the messages ``seqs`` of the queue with the hash key ``source`` have arrived.

        All of them, if the target has no journal.
        """
        if target is None:
            return set(seqs)
        with self._lock:
            queue = self._followed.get(target)
        if queue is not None:
            return set(seqs) - queue.follower.copies_waiting(source, seqs)
        return set() if self._has_journal(target) else set(seqs)

    def settle_all(self, target: JournalOfQueue) -> bool:
        """Settle messages that arrived at the ``target`` in their source queues, on disk.

        Returns false if a source's disk refuses.
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
