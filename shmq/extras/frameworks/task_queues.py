"""The connection and the queues of a task framework: their options, names, and handles for puts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack

import shmq
from shmq.api.keywords import PutKeywords
from shmq.api.message import Body
from shmq.api.names import with_dead_letter
from shmq.fork_safe import new_lock

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


class Connection:
    """Connects at its first use, so that a program can be imported without its server.

    ``url``, ``token`` and ``tls`` are those of :func:`shmq.connect`. After a fork the child's copy
    reconnects, as every handle of shmq does.
    """

    def __init__(self, url: str | None, token: str | None = None, tls: Tls = None) -> None:
        self._url = url
        self._token = token
        self._tls: Tls = tls
        self._lock = new_lock()
        self._broker: shmq.Broker | None = None

    @property
    def broker(self) -> shmq.Broker:
        """The broker. Raises what :func:`shmq.connect` raises."""
        with self._lock:
            if self._broker is None:
                self._broker = shmq.connect(self._url, token=self._token, tls=self._tls)
            return self._broker

    def close(self) -> None:
        """Close the broker and all of its handles; the next use connects again."""
        with self._lock:
            broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()


#: How long a lease lasts, in seconds: until it is settled or its holder is gone. The kernel reports
#: the end of a process, and the server that of a connection, so no clock has to.
LEASE: Final = 1e9

#: The options of a queue of tasks, under those that the application gives.
DEFAULTS: Final[dict[str, Any]] = {
    "capacity": 1_000_000,
    "arena_bytes": 1 << 30,
    "priorities": 10,
    "visibility_timeout": LEASE,
    # Only a delivery whose process died counts: a failed task is acknowledged, a requeued one is
    # returned uncounted. So this is the number of workers that one task may kill.
    "max_deliveries": 20,
    "retry_delay": 0.0,
    # Longer than a remote put may take, so that it is repeated safely after a lost connection.
    "dedupe_window": 60.0,
}


class Receipted(Protocol):
    """A leased message, of which its receipt alone is wanted."""

    @property
    def receipt(self) -> int:
        """The receipt."""


def give_back(queue: shmq.Queue, messages: Iterable[Receipted]) -> None:
    """Return leased messages to their queue at once, and do not count their delivery."""
    receipts = array("Q", [message.receipt for message in messages])
    if receipts:
        queue.bulk().return_run(receipts.tobytes())


class TaskQueues:
    """The queues of one framework's broker, made at their first use with the ``options`` given.

    A framework's name of a queue may have any characters and gets the ``prefix``. An existing queue
    is used if the ``options`` given are its own; the defaults are not compared.
    """

    def __init__(self, connection: Connection, prefix: str, options: dict[str, Any]) -> None:
        self._connection = connection
        self._prefix = prefix
        self._options = options
        self._lock = new_lock()
        self._handles: dict[str, shmq.Queue] = {}

    def shared_name(self, name: str) -> str:
        """The queue's name in shmq."""
        return shmq.escape_name(self._prefix + name)

    def open(self, name: str) -> shmq.Queue:
        """A new handle of the queue, which the caller closes; the queue is made if it is absent.

        Raises :class:`~shmq.QueueExists` if it exists with other options than those given.
        """
        shared = self.shared_name(name)
        options = with_dead_letter(shared, DEFAULTS | self._options)
        broker = self._connection.broker
        queue = broker.ensure_queue(shared, if_different="accept", **options)
        wanted = shmq.QueueOptions.for_queue(shared, options)
        other = [
            f"{key}={its!r}, not {ours!r}"
            for key, (its, ours) in queue.options.differences(wanted).items()
            if key in self._options
        ]
        if other:
            queue.close()
            raise shmq.QueueExists(
                f"the queue {shared!r} exists with {'; '.join(other)}: give the broker the options "
                f"that it was made with, or delete it (shmq delete {shared})"
            )
        return queue

    def queue(self, name: str) -> shmq.Queue:
        """The handle that all puts to the queue share."""
        with self._lock:
            if name not in self._handles:
                self._handles[name] = self.open(name)
            return self._handles[name]

    def at_hand(self, name: str) -> shmq.Queue | None:
        """The handle for puts if there is one already: for an event loop, which must not wait."""
        return self._handles.get(name)

    def forget(self, name: str, handle: shmq.Queue) -> None:
        """Share this handle no longer: its queue was deleted, and the next use recreates it.

        Others may be using the handle, so its last user closes it, by letting it go. If another
        thread has forgotten it before, the name has a new handle, which stays.
        """
        with self._lock:
            if self._handles.get(name) is handle:
                del self._handles[name]

    def put(
        self, name: str, body: Body, timeout: float | None = None, **properties: Unpack[PutKeywords]
    ) -> None:
        """Put a task, into a new queue if its queue was deleted. Raises what `Queue.put` raises."""
        queue = self.queue(name)
        try:
            queue.put(body, None, timeout, **properties)
        except (shmq.QueueDeleted, shmq.NoSuchQueue):
            self.forget(name, queue)
            self.queue(name).put(body, None, timeout, **properties)

    def dead_letters(self, name: str) -> shmq.Queue | None:
        """A handle of the queue's dead letters, which the caller closes; None if it keeps none."""
        shared = self.queue(name).options.dead_letter
        return None if shared is None else self._connection.broker.queue(shared)

    def close(self) -> None:
        """Close every handle."""
        with self._lock:
            self._handles.clear()
        self._connection.close()
