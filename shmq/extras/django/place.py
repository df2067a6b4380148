"""Where a backend keeps tasks: its OPTIONS in the settings, its queues, the table of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from django.core.exceptions import ImproperlyConfigured

import shmq
from shmq.api.names import check_name, with_dead_letter
from shmq.api.options import QueueOptions, check_one_of, check_whole
from shmq.api.table import MAX_TTL
from shmq.errors import InvalidOption, ShmqError
from shmq.extras.frameworks.task_queues import Connection
from shmq.fork_safe import new_lock
from shmq.native._core import check_seconds
from shmq.suggestions import suggest

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """Where a backend keeps tasks and their results, and for how long."""

    #: As for :func:`shmq.connect`: a namespace of this host, or the URL of a server.
    target: str | None = None
    #: The token for the server.
    token: str | None = dataclasses.field(default=None, repr=False)
    #: The certificates for the server.
    tls: Tls = None
    #: What the names of queues begin with, before the names that Django knows.
    prefix: str = "django."
    #: The options that a queue is made with.
    queue_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: The table of the results.
    results: str = "django.results"
    #: Whether the results outlast the machine: ``"memory"`` or ``"disk"``.
    result_durability: Literal["memory", "disk"] = "memory"
    #: For how long a result is kept after the end of its task, in seconds; None: for ever.
    result_ttl: float | None = 86_400.0
    #: How many processes may die with a task before it has failed.
    max_attempts: int = 3

    @classmethod
    def of(cls, alias: str, given: Mapping[str, Any]) -> BackendOptions:
        """The options of the settings. Raises ImproperlyConfigured, with what is wrong."""
        names = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in names:
                raise ImproperlyConfigured(
                    f"TASKS[{alias!r}]: no option {name!r}: {suggest(name, names)}"
                )
        try:
            made = cls(**given)
            made.check()
        except (ShmqError, TypeError) as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from error
        return made

    def check(self) -> None:
        """Raise :class:`~shmq.ShmqError` or TypeError for what no backend can be made with."""
        check_name(f"{self.prefix}default")
        check_name(self.results, "table")
        check_one_of("result_durability", self.result_durability, ("memory", "disk"))
        check_whole("max_attempts", self.max_attempts, 1)
        if self.result_ttl is not None:
            check_seconds("result_ttl", self.result_ttl, 1.0)
            if self.result_ttl > MAX_TTL:
                raise InvalidOption(
                    f"result_ttl={self.result_ttl} must be at most {MAX_TTL:.0f} s, or None"
                )
        if "max_deliveries" in self.queue_options:
            raise TypeError("queue_options: max_deliveries is max_attempts of the backend")
        QueueOptions.for_queue("any", dict(self.queue_options))


#: How many priorities a queue has that is made here: an odd number, so that 0 is the middle one.
_PRIORITIES: Final = 15

_places: dict[str, Place] = {}
_lock: Final = new_lock()


class Place:
    """Opens each queue, and the table, at the first use. Threads share it; so may a fork."""

    def __init__(self, options: BackendOptions) -> None:
        self._options = options
        self._lock = new_lock()
        self._connection = Connection(options.target, options.token, options.tls)
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
        return self._connection.broker

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
                found = self.broker.ensure_queue(
                    name,
                    if_different="warn" if self._options.queue_options else "accept",
                    **with_dead_letter(name, options),
                )
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
