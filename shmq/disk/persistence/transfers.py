"""What moved between durable queues, as their writers see it: whether its target has it on disk."""

from __future__ import annotations

import threading
from typing import Final, Protocol

from shmq.errors import NoSuchQueue, QueueDeleted, SegmentError
from shmq.host.namespace.namespace import Namespace

#: A message may move on while one queue after another is written: how often all are, at most.
_ROUNDS: Final = 3


class Target(Protocol):
    """A durable queue to which others move messages, as they see it. For any thread."""

    name: str

    def find_arrived(self, source: int, seqs: list[int]) -> set[int]:
        """Which of these messages, of the queue with the hash key ``source``, are on its disk."""

    def secure_arrivals(self, source: int) -> bool:
        """Have all that came here on disk; whether it was not yet.

        Raises OSError, with EAGAIN if a message of the queue with the hash key ``source`` is under
        way; and QueueDeleted.
        """

    def settle_arrived(self, target: str) -> bool:
        """Settle what has arrived at ``target``, on disk; return false if the disk refuses."""


class Transfers:
    """Knows the durable queues of the namespace, and what arrived there. For any thread."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._targets: dict[str, Target] = {}

    def enter(self, queue: Target) -> None:
        """Add a queue that this process writes."""
        with self._lock:
            self._targets[queue.name] = queue

    def leave(self, queue: Target) -> None:
        """Remove the queue."""
        with self._lock:
            if self._targets.get(queue.name) is queue:
                del self._targets[queue.name]

    def arrived(self, source: int, target: str | None, seqs: list[int]) -> set[int]:
        """Which of the messages ``seqs`` of the queue with the hash key ``source`` have arrived.

        All of them, if the target is in memory only. Raises OSError.
        """
        if target is None:
            return set(seqs)
        with self._lock:
            queue = self._targets.get(target)
        if queue is None:
            return set() if self._is_durable(target) else set(seqs)
        try:
            return queue.find_arrived(source, seqs)
        except QueueDeleted:
            return set(seqs)

    def settle_all(self, target: Target) -> bool:
        """Settle messages that arrived at the ``target`` in their source queues, on disk.

        Returns false if a source's disk refuses.
        """
        return all(source.settle_arrived(target.name) for source in self._others(target))

    def secure_all(self, source: Target, key: int) -> None:
        """Have on disk what moved from the ``source``, whose hash key is ``key``, to any queue.

        Raises OSError, with EAGAIN if a message is under way.
        """
        targets = [*self._others(source), source]  # a message may have come back
        for _ in range(_ROUNDS):
            if sum(_secure(target, key) for target in targets) == 0:
                return

    def _others(self, queue: Target) -> list[Target]:
        with self._lock:
            return [each for each in self._targets.values() if each is not queue]

    def _is_durable(self, queue: str) -> bool:
        try:
            segment = self._namespace.open_segment(queue)
        except (NoSuchQueue, SegmentError):
            return False
        return bool(segment.options["durability"] != "memory")


def _secure(target: Target, source: int) -> bool:
    try:
        return target.secure_arrivals(source)
    except QueueDeleted:
        return False
