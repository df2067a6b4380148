"""The owners and the consumers of temporary queues among the sessions of a server's process."""

from __future__ import annotations

import functools
import threading

from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.client.local.temporary_queue import check_owner
from shmq.errors import Forbidden
from shmq.native._core import Session
from shmq.server.handlers.side_threads import SideThreads


class TemporaryQueues:
    """Exclusive queues that end with a session, and the sessions that consume."""

    def __init__(self, broker: LocalBroker, side_threads: SideThreads) -> None:
        self._broker = broker
        self._side_threads = side_threads
        #: Guards the next two: queues are made in side threads.
        self._owning = threading.Lock()
        #: The exclusive queues of each session: their names and ids.
        self._own: dict[Session, list[tuple[str, int]]] = {}
        #: The session that owns each exclusive queue of this process, by the queue's id.
        self._owners: dict[int, Session] = {}
        #: The handles that count a session among the consumers of queues, by the queues' ids.
        self._consuming: dict[Session, dict[int, LocalQueue]] = {}

    def owner_of(self, session: Session, queue: LocalQueue) -> str | None:
        """Why the session may only put: the owner is named; None: it may do more."""
        owner = self._owners.get(queue.segment.queue_id)
        if owner is session:
            return None
        if owner is not None:
            return (
                f"queue {queue.name!r} is exclusive to connection {owner.context}: others may "
                f"only put into it, by an exchange or as a reply or a request"
            )
        try:
            check_owner(queue.namespace, queue.name, queue.segment)
        except Forbidden as error:
            return str(error)
        return None

    def check_owner(self, session: Session, queue: LocalQueue) -> None:
        """Raise Forbidden if the queue is exclusive to another client."""
        owner = self.owner_of(session, queue)
        if owner is not None:
            raise Forbidden(owner)

    def own(self, session: Session, made: LocalQueue) -> None:
        """Let an exclusive queue end with the session. Raises Forbidden if it is another's."""
        queue_id = made.segment.queue_id
        with self._owning:
            if self._owners.setdefault(queue_id, session) is session:
                self._own.setdefault(session, []).append((made.name, queue_id))
                session.own()
        self.check_owner(session, made)

    def consume(self, session: Session, queue: LocalQueue) -> None:
        """Count the session among the consumers of the queue, until the session ends.

        Raises Forbidden, LockTimeout, QueueDeleted.
        """
        self.check_owner(session, queue)
        handles = self._consuming.setdefault(session, {})
        if queue.segment.queue_id not in handles:
            handle = LocalQueue(queue.namespace, queue.name, queue.segment)
            handle.begin_consuming()
            handles[queue.segment.queue_id] = handle

    def left(self, session: Session) -> None:
        """End what ends with the session."""
        for handle in self._consuming.pop(session, {}).values():
            self._side_threads.owe(f"queue {handle.name}: leaving it", handle.leave)
        with self._owning:
            ended = self._own.pop(session, [])
            for _, queue_id in ended:
                self._owners.pop(queue_id, None)
        for name, queue_id in ended:
            self._side_threads.owe(
                f"queue {name}: removing it",
                functools.partial(self._broker.delete_own_queue, name, queue_id),
            )
