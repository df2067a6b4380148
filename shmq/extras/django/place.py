"""The queues of a backend's tasks, and the table of their results."""

from __future__ import annotations

from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

import shmq
from shmq.api.names import with_dead_letter
from shmq.extras.django.options import BackendOptions
from shmq.fork_safe import new_lock

#: How many priorities a queue has that is made here: an odd number, so that 0 is the middle one.
_PRIORITIES: Final = 15

_places: dict[str, Place] = {}
_lock: Final = new_lock()


class Place:
    """Opens each queue, and the table, at the first use. Threads share it; so may a fork."""

    def __init__(self, options: BackendOptions) -> None:
        self._options = options
        self._lock = new_lock()
        self._broker: shmq.Broker | None = None
        self._queues: dict[str, shmq.Queue] = {}
        self._results: Any = None

    @classmethod
    def of(cls, options: BackendOptions) -> Place:
        """The place of these options, which all threads of the process share.

        Django makes a backend for each thread.
        """
        key = f"{options!r} {options.token!r}"
        with _lock:
            if key not in _places:
                _places[key] = cls(options)
            return _places[key]

    @property
    def broker(self) -> shmq.Broker:
        """The connection. Raises what :func:`shmq.connect` raises."""
        with self._lock:
            if self._broker is None:
                given = self._options
                self._broker = shmq.connect(given.target, token=given.token, tls=given.tls)
            return self._broker

    @property
    def results(self) -> Any:
        """The table of results. Raises what ``Broker.ensure_table`` raises."""
        with self._lock:
            if self._results is None:
                self._results = self.broker.ensure_table(
                    self._options.results, self._options.result_durability
                )
            return self._results

    def name_of(self, queue_name: str) -> str:
        """The name in shmq of a queue that Django knows by ``queue_name``."""
        return shmq.escape_name(self._options.prefix + queue_name)

    def queue(self, queue_name: str) -> shmq.Queue:
        """The queue, which is made if it does not exist.

        Raises what ``Broker.ensure_queue`` raises, and ImproperlyConfigured for a queue whose
        messages become dead letters before their tasks have failed.
        """
        with self._lock:
            found = self._queues.get(queue_name)
            if found is None:
                options = {
                    "priorities": _PRIORITIES,
                    **self._options.queue_options,
                    "max_deliveries": None,
                }
                name = self.name_of(queue_name)
                found = self.broker.ensure_queue(name, **with_dead_letter(name, options))
                self._check(found)
                self._queues[queue_name] = found
            return found

    def _check(self, queue: shmq.Queue) -> None:
        most, attempts = queue.options.max_deliveries, self._options.max_attempts
        if most is not None and most <= attempts:
            raise ImproperlyConfigured(
                f"queue {queue.name!r} has max_deliveries={most}, and the backend "
                f"max_attempts={attempts}: make the queue with more, or without a limit"
            )

    def put(self, queue_name: str, body: dict[str, Any], priority: int, at: float | None) -> None:
        """Put a task, to be delivered at that time, in seconds since 1970.

        Raises what :meth:`shmq.Queue.put` raises.
        """
        try:
            self._put(queue_name, body, priority, at)
        except shmq.QueueDeleted:  # since it was opened
            with self._lock:
                self._queues.pop(queue_name, None)
            self._put(queue_name, body, priority, at)

    def _put(self, queue_name: str, body: dict[str, Any], priority: int, at: float | None) -> None:
        queue = self.queue(queue_name)
        level = round((priority + 100) * (queue.options.priorities - 1) / 200)
        queue.put(body, codec="json", priority=level, deliver_at=at)
