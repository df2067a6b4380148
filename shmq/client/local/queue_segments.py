"""The segments of a namespace's queues: found, created and removed without attaching."""

from __future__ import annotations

import contextlib
import logging

from shmq.api.names import is_reply_name, staging_target
from shmq.api.options import DEAD_LETTER_ROOM, QueueOptions
from shmq.client.shared import durability
from shmq.errors import ForeignSegment, InvalidOption, NoSuchQueue, SegmentError, ShmqError
from shmq.namespace.namespace import Namespace
from shmq.namespace.semaphores import semaphore_names, wakeup_prefix
from shmq.native import _core
from shmq.routing.book import Book

__all__ = [
    "ensure_dead_letters",
    "find_segment",
    "remove_dropped",
    "remove_owned",
    "remove_queue",
    "remove_replies",
    "remove_staged",
]

log = logging.getLogger("shmq")


def find_segment(namespace: Namespace, name: str) -> _core.Segment | None:
    """The queue's segment; None if there is no such queue. Raises SegmentError."""
    try:
        return namespace.open_segment(name)
    except NoSuchQueue:
        return None


def ensure_dead_letters(namespace: Namespace, name: str, options: QueueOptions) -> _core.Segment:
    """The segment of the queue's dead-letter queue, created if there is none."""
    dead_letter = options.dead_letter
    assert dead_letter is not None
    with namespace.locked():
        segment = find_segment(namespace, dead_letter)
        if segment is None:
            return namespace.make_segment(dead_letter, options.for_dead_letters())
    found = QueueOptions(**segment.options)
    if found.dead_letter is not None or found.max_deliveries is not None:
        raise InvalidOption(
            f"dead_letter={dead_letter!r}: that queue has a delivery limit or a dead-letter queue "
            f"of its own, so it cannot take the dead letters of {name!r}: name another"
        )
    if found.arena_bytes < options.max_message_bytes + DEAD_LETTER_ROOM:
        raise InvalidOption(
            f"dead_letter={dead_letter!r}: its arena_bytes={found.arena_bytes} cannot hold a "
            f"message of {options.max_message_bytes} bytes from {name!r}: name a larger one"
        )
    return segment


def remove_queue(namespace: Namespace, name: str) -> None:
    """Remove a queue, whatever its state. Needs the registry lock.

    Its bindings are removed first, so that a new queue of its name is bound to nothing.
    """
    segment = None
    try:
        Book.of(namespace).forget("queue", name)
    except SegmentError as error:
        log.warning("queue %s is removed, its bindings are not: %s", name, error)
    if durability.give_up(namespace, "queue", name):
        return
    try:
        segment = namespace.open_segment(name)
        names = semaphore_names(namespace.name, segment.queue_id)
        _core.mark_deleted(segment, *names, wakeup_prefix(namespace.name))
    except ForeignSegment:
        raise
    except SegmentError as error:
        log.info("queue %s is removed as it is: %s", name, error)
    namespace.erase(name, segment)
    namespace.remove_segment(name)


def remove_staged(namespace: Namespace, target: str) -> None:
    """Remove the staging queues of a queue that is about to be deleted. Needs the registry lock."""
    for name in namespace.noted_queues(f"{target}.staged."):
        if staging_target(name) == target:
            with contextlib.suppress(NoSuchQueue):
                remove_queue(namespace, name)


def remove_replies(namespace: Namespace) -> None:
    """Remove the reply queues whose clients are gone. Needs the registry lock."""
    for name in namespace.noted_queues("reply."):
        if is_reply_name(name):
            with contextlib.suppress(ShmqError, OSError):
                queue_id = namespace.queue_id_of(name)
                if queue_id and not namespace.is_claimed(queue_id):
                    remove_queue(namespace, name)


def remove_dropped(namespace: str, name: str, queue_id: int) -> None:
    """Remove a client's own queue whose handle was garbage collected without a close."""
    found = Namespace.of(namespace)
    found.run_when_unlocked(lambda: remove_owned(found, name, queue_id))


def remove_owned(found: Namespace, name: str, queue_id: int) -> None:
    """Remove a client's own queue, if its id still matches."""
    with contextlib.suppress(ShmqError, OSError):
        with found.locked():
            if found.queue_id_of(name) == queue_id:
                remove_queue(found, name)
        found.unclaim(queue_id)
        found.retire()
