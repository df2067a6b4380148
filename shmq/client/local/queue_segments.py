"""The segments of a namespace's queues: found, created and removed without attaching."""

from __future__ import annotations

import contextlib
import logging

from shmq.api.names import staging_target
from shmq.api.options import QueueOptions
from shmq.client.shared import durability
from shmq.errors import ForeignSegment, NoSuchQueue, SegmentError
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.semaphores import semaphore_names
from shmq.host.namespace.wakeups import wakeup_prefix
from shmq.model.routing.book import Book
from shmq.native import _core

log = logging.getLogger("shmq")


def find_segment(namespace: Namespace, name: str) -> _core.Segment | None:
    """The queue's segment; None if no such queue exists. Raises SegmentError."""
    there = namespace.has("queue", name)
    try:
        return namespace.open_segment(name)
    except NoSuchQueue:
        if there:  # a process died between the end of the queue and that of its bindings
            with namespace.locked():
                if not namespace.has("queue", name):
                    _forget_bindings(namespace, name)
        return None


def ensure_dead_letters(namespace: Namespace, name: str, options: QueueOptions) -> _core.Segment:
    """The segment of the queue's dead-letter queue, created if there is none."""
    dead_letter = options.dead_letter
    assert dead_letter is not None
    with namespace.locked():
        segment = find_segment(namespace, dead_letter)
        if segment is None:
            return namespace.make_segment(dead_letter, options.for_dead_letters())
    options.check_dead_letters(name, QueueOptions(**segment.options))
    return segment


def remove_queue(namespace: Namespace, name: str) -> _core.Segment | None:
    """Remove a queue, whatever its state; return its segment, if it could be opened.

    Its bindings are removed first, so that a new queue of its name is bound to nothing. Needs the
    registry lock.
    """
    segment = None
    _forget_bindings(namespace, name)
    if durability.give_up(namespace, "queue", name):
        return None
    try:
        segment = namespace.open_segment(name)
        _mark_deleted(namespace, segment)
    except ForeignSegment:
        raise
    except SegmentError as error:
        log.info("queue %s is removed as is: %s", name, error)
    namespace.erase(name, segment)
    namespace.remove_segment(name, None if segment is None else segment.queue_id)
    if segment is not None:
        namespace.roles.unclaim(segment.queue_id)
    return segment


def remove_ended(namespace: Namespace, name: str, segment: _core.Segment) -> None:
    """Remove a queue that is marked as deleted. Needs the registry lock."""
    _mark_deleted(namespace, segment)
    _forget_bindings(namespace, name)
    namespace.erase(name, segment)
    namespace.remove_segment(name, segment.queue_id)
    namespace.roles.unclaim(segment.queue_id)


def _mark_deleted(namespace: Namespace, segment: _core.Segment) -> None:
    """Mark it as deleted, and wake those who wait at it."""
    names = semaphore_names(namespace.name, segment.queue_id)
    _core.mark_deleted(segment, *names, wakeup_prefix(namespace.name))


def _forget_bindings(namespace: Namespace, name: str) -> None:
    try:
        Book.of(namespace).forget("queue", name)
    except SegmentError as error:
        log.warning("queue %s is removed, its bindings are not: %s", name, error)


def remove_staged(namespace: Namespace, target: str) -> None:
    """Remove the staging queues of a queue that is about to be deleted. Needs the registry lock."""
    for name in namespace.noted_queues(f"{target}.staged."):
        if staging_target(name) == target:
            with contextlib.suppress(NoSuchQueue):
                remove_queue(namespace, name)
