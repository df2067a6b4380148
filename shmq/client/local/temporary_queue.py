"""The end of queues that end by themselves: ``expires``, ``auto_delete`` and ``exclusive``.

Which processes live is decided by the kernel (`shmq.host.namespace.namespace`). The owner of an
exclusive queue has the claim to it; consumers are marked in their attachments
(shmq/core/queue/attachments.c). A queue that is past its end is deleted by the process that
notices: one that opens, lists or publishes, one that waits for deaths, or the keeper. It decides
under the registry lock, and marks the queue as deleted in the critical section that finds it
without a consumer. So a consumer either comes before, and the queue stays, or it gets the error
that the queue is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from shmq.api.names import own_dead_letters
from shmq.api.options import QueueOptions, options_of
from shmq.client.local.queue_segments import remove_ended, remove_queue, remove_staged
from shmq.errors import Forbidden, NoSuchQueue, QueueDeleted, SegmentError, ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core
from shmq.native.lock_holder import Holder

#: Opens a queue of the namespace, with its segment: the class is built on this module.
_OpenQueue = Callable[[Namespace, str, _core.Segment], Any]


#: How many queues are looked at for whether they use a dead-letter queue; it takes 0.1 ms each.
_MOST_LOOKED_AT: Final = 1000


def check_owner(namespace: Namespace, name: str, segment: _core.Segment) -> None:
    """Raise Forbidden if the queue is exclusive to another process."""
    if segment.is_exclusive and not namespace.roles.has_claim(segment.queue_id):
        pid = namespace.roles.claimer_of(segment.queue_id)
        owner = "a process that has ended"
        if pid is not None:
            owner = f"process {pid} ({Holder.of(pid).name})" if pid else "a process without a PID"
        raise Forbidden(
            f"queue {name!r} is exclusive to {owner}: others may only put into it, by an exchange "
            f"or as a reply or a request"
        )


def looks_over(namespace: Namespace, segment: _core.Segment) -> bool:
    """Whether a temporary queue seems to be past its end. Takes no lock."""
    if segment.is_exclusive and not namespace.roles.is_claimed(segment.queue_id):
        return True
    consumers = segment.consumers()
    if consumers:
        return not any(map(namespace.processes.is_alive, consumers))
    return segment.is_unused


def remove_if_over(namespace: Namespace, name: str, open_queue: _OpenQueue) -> bool:
    """Delete the temporary queue of that name if it is past its end; whether that was so.

    Raises ShmqError if that is unknown now, or the queue not be deleted.
    """
    with contextlib.suppress(NoSuchQueue, SegmentError):
        segment = namespace.look_at(name)
        if segment is None or not _can_be_over(namespace, segment):
            return False
        with namespace.locked():
            segment = namespace.look_at(name)
            if segment is None or not _can_be_over(namespace, segment):
                return False
            return _end(namespace, name, segment, open_queue)
    return False


def _can_be_over(namespace: Namespace, segment: _core.Segment) -> bool:
    return segment.is_temporary and not segment.deleted and looks_over(namespace, segment)


def _end(namespace: Namespace, name: str, segment: _core.Segment, open_queue: _OpenQueue) -> bool:
    """Delete it, unless it has a consumer after all. Needs the registry lock."""
    current, alterations = segment.read_options()
    options = QueueOptions(**current)
    if segment.is_exclusive and not namespace.roles.is_claimed(segment.queue_id):
        remove_staged(namespace, name)
        remove_queue(namespace, name)
    else:
        with contextlib.suppress(QueueDeleted), open_queue(namespace, name, segment) as queue:
            queue.return_of_dead()
            if not queue.end(unused=True):
                return False
        remove_staged(namespace, name)
        remove_ended(namespace, name, segment)
    remove_empty_dead_letters(namespace, name, options, alterations > 0, open_queue)
    namespace.forget_names()
    return True


def remove_empty_dead_letters(
    namespace: Namespace, name: str, options: QueueOptions, altered: bool, open_queue: _OpenQueue
) -> None:
    """Delete the dead-letter queue that was created for a queue that is gone, if it is empty.

    It was if its name and options are those that it would be created with, but for what can be
    altered, if the options of either were altered. One that another queue uses stays. Needs the
    registry lock.
    """
    dead_letter = options.dead_letter
    if dead_letter is None or dead_letter != own_dead_letters(name):
        return
    with contextlib.suppress(ShmqError):  # the queue is gone: without memory, say, this one stays
        segment = namespace.open_segment(dead_letter)
        present, alterations = segment.read_options()
        others = options.for_dead_letters().differences(QueueOptions(**present))
        if altered or alterations:
            fixed = options_of(QueueOptions)
            others = {key: both for key, both in others.items() if fixed[key].fixed}
        if others or _is_used(namespace, dead_letter):
            return
        with open_queue(namespace, dead_letter, segment) as queue:
            ended = queue.end(unused=False)
        if ended:
            remove_ended(namespace, dead_letter, segment)


def _is_used(namespace: Namespace, dead_letter: str) -> bool:
    """Whether it is the dead-letter queue of a queue, or there are too many to look at."""
    names = namespace.noted_queues("")
    if len(names) > _MOST_LOOKED_AT:
        return True
    for name in names:
        with contextlib.suppress(NoSuchQueue, SegmentError):
            segment = namespace.look_at(name)
            if segment is not None and segment.options["dead_letter"] == dead_letter:
                return True
    return False


# ---- by their owner ----


def remove_dropped(namespace: str, name: str, queue_id: int) -> None:
    """Delete this process's exclusive queue from a destructor, once the namespace is free."""
    found = Namespace.of(namespace)
    found.processes.run_when_unlocked(lambda: remove_owned(found, name, queue_id))


def remove_owned(namespace: Namespace, name: str, queue_id: int) -> None:
    """Delete this process's exclusive queue, if its id still matches."""
    with contextlib.suppress(ShmqError, OSError):
        with namespace.locked():
            if namespace.roles.has_claim(queue_id) and namespace.queue_id_of(name) == queue_id:
                remove_staged(namespace, name)
                remove_queue(namespace, name)
        namespace.roles.unclaim(queue_id)
        namespace.retire()
