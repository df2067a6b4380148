"""The storage of huey: a queue of tasks, and tables of scheduled tasks, results and counters."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from huey.constants import EmptyData
from huey.storage import BaseStorage

import shmq
from shmq.api.names import is_url
from shmq.api.table import MAX_KEYS, TableDurability
from shmq.client.handles.table import check_table
from shmq.client.shared.outage import Outage
from shmq.errors import InvalidOption
from shmq.extras.frameworks.cache_table import bound_ttl
from shmq.extras.frameworks.greenlets import has_greenlets
from shmq.extras.frameworks.task_queues import Connection, TaskQueues
from shmq.extras.frameworks.task_table import TaskTable, shorten_key
from shmq.fork_safe import new_lock

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

logger = getLogger("huey.shmq")

#: The options of the queue, under those of the application.
_DEFAULTS: Final[dict[str, Any]] = {
    # Longer than the schedulers of two consumers may be apart in the same minute.
    "dedupe_window": 120.0,
    "dead_letter_ttl": 7 * 86_400.0,
}
#: How long the connection of a worker may be silent, in seconds.
SILENCE: float = 30.0
#: The deepest queue that `enqueued_items` returns in full.
_ALL: Final = 1_000_000
_EPOCH: Final = dt.datetime.min  # noqa: DTZ901 - huey's times have no zone
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def find_target(url: str | None) -> str:
    """The URL or namespace that :func:`shmq.connect` will use; empty: the user's own namespace."""
    return url or os.environ.get("SHMQ_URL") or ""


class Scheduled(NamedTuple):
    """An entry of the schedule: its key, which sorts by its time, and its task."""

    key: str
    data: bytes


class TaskBytes(bytes):
    """A task, and the id under which it is enqueued once."""

    dedupe_id: str | None = None


class Pulse:
    """Calls ``call`` every `SILENCE` seconds in a thread of this process, from `start` to `stop`.

    A server closes a connection that is silent for its idle limit, of minutes, and returns the task
    that was leased over it: so a task that takes longer would run twice.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._lock = new_lock()
        #: The process in which the thread runs: a fork leaves it behind.
        self._process = 0
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._process != os.getpid():
                self._process, self._stopped = os.getpid(), threading.Event()
                threading.Thread(target=self._run, args=(self._stopped,), daemon=True).start()

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(SILENCE):
            with contextlib.suppress(shmq.ShmqError):
                self._call()

    def stop(self) -> None:
        """Let the thread end."""
        with self._lock:
            self._process = 0
            self._stopped.set()


class ShmqStorage(BaseStorage):
    """Stores the tasks of the application ``name`` in the queue ``prefix`` + ``name``.

    Scheduled tasks, results and counters are in the tables ``NAME-schedule``, ``NAME-results`` and
    ``NAME-counters``. ``url``, ``token`` and ``tls`` are as for :func:`shmq.connect`.
    ``dequeue`` waits up to ``read_timeout`` seconds, unless ``blocking`` is false, or gevent has
    patched the process: a wait in C would stop all greenlets. Results and
    counters expire after ``expire_time`` seconds, as with huey's ``RedisExpireStorage``: reading
    a result does not delete it. ``priorities`` are the 1 to 16 numbers that tasks may have as their
    priority, higher first. ``durability`` and ``max_bytes`` of ``tables`` are those of
    ``Broker.ensure_table``; the other ``options`` are those of :class:`shmq.QueueOptions`.
    """

    def __init__(
        self,
        name: str = "huey",
        url: str | None = None,
        *,
        token: str | None = None,
        tls: Tls = None,
        prefix: str = "",
        blocking: bool = True,
        read_timeout: float = 1.0,
        expire_time: float = 86_400.0,
        priorities: Sequence[float] = range(16),
        table_durability: TableDurability = "memory",
        table_max_bytes: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name)
        check_table(table_durability, table_max_bytes)
        self.blocking = blocking and not has_greenlets()
        self.read_timeout = read_timeout if self.blocking else 0.0
        self._expire_time = bound_ttl(expire_time)
        self._levels = {number: level for level, number in enumerate(sorted({0, *priorities}))}
        connection = Connection(url, token, tls)
        options = _DEFAULTS | {"priorities": len(self._levels)} | options
        self._queues = TaskQueues(connection, prefix, options)
        warn = partial(logger.warning, "queue %r: waiting for the server: %s", name)
        self._outage = Outage(warn, math.inf)
        self._pulse = Pulse(self.queue_size) if is_url(find_target(url)) else None

        def table(noun: str) -> TaskTable:
            full = shmq.escape_name(f"{prefix}{name}-{noun}")
            return TaskTable(connection, full, table_durability, table_max_bytes)

        self._schedule = table("schedule")
        self._results = table("results")
        self._counters = table("counters")

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        if self._pulse is not None:
            self._pulse.stop()
        for table in (self._schedule, self._results, self._counters):
            table.close()
        self._queues.close()

    # ---- the queue ----

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Put the task; one with an id once. Raises what ``Queue.put`` raises."""
        level = self._levels.get(priority or 0)
        if level is None:
            raise InvalidOption(
                f"priority={priority!r} must be one of {list(self._levels)}: name the priorities "
                f"of your tasks, 16 at most, with ShmqHuey(priorities=[...])"
            )
        dedupe_id = data.dedupe_id if isinstance(data, TaskBytes) else None
        self._queues.put(self.name, data, priority=level, dedupe_id=dedupe_id)

    def dequeue(self) -> bytes | None:
        """Remove the next task and return it: a consumer that is killed loses it."""
        leased = self.lease()
        if leased is None:
            return None
        data = bytes(leased.body)
        leased.ack()
        return data

    def lease(self) -> shmq.Message | None:
        """Lease the next task until it is settled or the process ends; None if there is none.

        Also None while the server is unreachable, which is logged every 30 seconds.
        """
        if self._pulse is not None:
            self._pulse.start()
        queue = self._queues.queue(self.name)
        try:
            with self._outage:
                return queue.get(self.read_timeout > 0, self.read_timeout)
        except shmq.Empty:
            return None
        except (shmq.QueueDeleted, shmq.NoSuchQueue):
            self._queues.forget(self.name, queue)
        return None

    def queue_size(self) -> int:
        """How many tasks are waiting."""
        return self._peek_queue().qsize()

    def enqueued_items(self, limit: int | None = None) -> list[bytes]:
        """The tasks that are waiting, those to be run first."""
        return [bytes(each.body) for each in self._peek_queue().peek(limit or _ALL)]

    def flush_queue(self) -> None:
        """Remove all tasks that are waiting."""
        self._peek_queue().purge()

    def _peek_queue(self) -> shmq.Queue:
        """The queue, recreated if it was deleted."""
        queue = self._queues.queue(self.name)
        try:
            queue.qsize()
        except (shmq.QueueDeleted, shmq.NoSuchQueue):
            self._queues.forget(self.name, queue)
        return self._queues.queue(self.name)

    # ---- the schedule ----

    def add_to_schedule(self, data: bytes, ts: dt.datetime) -> None:
        """Add the task, to be read at ``ts``."""
        key = f"{_sort_key(ts)}:{uuid.uuid4().hex}"
        self._schedule.run(lambda table: table.set(key, data))

    def read_schedule(self, ts: dt.datetime) -> list[bytes]:
        """Remove the tasks that are due at ``ts`` and return them, each to one caller."""
        return [each.data for each in self.find_due(ts) if self.unschedule(each.key)]

    def find_due(self, ts: dt.datetime) -> list[Scheduled]:
        """The entries that are due at ``ts``, the earliest first; they stay until `unschedule`."""
        last = f"{_sort_key(ts)};"  # after each key of that time
        due = []
        for each in self._entries():
            if each.key > last:
                break
            due.append(each)
        return due

    def is_scheduled(self, key: str) -> bool:
        """Whether the entry is still there."""
        return self._schedule.run(lambda table: table.get(key)) is not None

    def unschedule(self, key: str) -> bool:
        """Remove the entry; return whether this call has removed it."""
        return self._schedule.run(lambda table: table.delete(key)) > 0

    def schedule_size(self) -> int:
        """How many tasks are scheduled."""
        return self._schedule.run(len)

    def scheduled_items(self, limit: int | None = None) -> list[bytes]:
        """The scheduled tasks, the earliest first."""
        found = []
        for each in self._entries():
            found.append(each.data)
            if len(found) == limit:
                break
        return found

    def flush_schedule(self) -> None:
        """Remove all scheduled tasks."""
        self._schedule.run(lambda table: table.clear())

    def _entries(self) -> Iterator[Scheduled]:
        return (Scheduled(*each) for each in _items(self._schedule, 100))

    # ---- results and other values ----

    def put_data(self, key: str | bytes, value: bytes, is_result: bool = False) -> None:
        """Set the value; one that is a result expires."""
        ttl = self._expire_time if is_result else None
        self._results.store(_to_key(key), value, ttl)

    def peek_data(self, key: str | bytes) -> Any:
        """The value, or ``EmptyData``."""
        return self._results.run(lambda table: table.get(_to_key(key), EmptyData))

    def peek_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The values of those keys that are there."""
        names = {_to_key(key): key for key in keys}
        found = self._results.run(lambda table: table.get_many(names))
        return {names[name]: value for name, value in found.items()}

    def pop_data(self, key: str | bytes) -> Any:
        """The value, or ``EmptyData``; it stays until it expires."""
        return self.peek_data(key)

    def delete_data(self, key: str | bytes) -> bool:
        """Delete the value; return whether it was there."""
        return self._results.run(lambda table: table.delete(_to_key(key))) > 0

    def wait_result(
        self,
        key: str,
        timeout: float | None = None,
        backoff: float = 1.15,  # noqa: ARG002 - the table has pauses of its own
        max_delay: float = 1.0,  # noqa: ARG002
    ) -> bool:
        """Wait for the value; return whether it arrived in time."""
        return self._results.run(lambda table: table.wait(_to_key(key), timeout)) is not None

    def has_data_for_key(self, key: str | bytes) -> bool:
        """Whether there is a value."""
        return self.peek_data(key) is not EmptyData

    def put_if_empty(self, key: str | bytes, value: bytes, ttl: float | None = None) -> bool:
        """Set the value if there is none; return whether it was set."""
        return self._results.run(lambda table: table.add(_to_key(key), value, bound_ttl(ttl)))

    def result_store_size(self) -> int:
        """How many values there are."""
        return self._results.run(len)

    def result_items(self) -> dict[str, bytes]:
        """All values by their keys."""
        return dict(_items(self._results))

    def flush_results(self) -> None:
        """Delete all values."""
        self._results.run(lambda table: table.clear())

    # ---- counters ----

    def incr(self, key: str | bytes, amount: int = 1) -> int:
        """Add to the counter, and return the sum."""
        found = self._counters.run(
            lambda table: table.increment(_to_key(key), amount, ttl=self._expire_time)
        )
        assert found is not None  # it has no bounds
        return found

    def delete_counter(self, key: str | bytes) -> None:
        """Delete the counter."""
        self._counters.run(lambda table: table.delete(_to_key(key)))

    def flush_counters(self) -> None:
        """Delete all counters."""
        self._counters.run(lambda table: table.clear())


def _to_key(key: str | bytes) -> str:
    return shorten_key(key.decode() if isinstance(key, bytes) else key)


def _sort_key(ts: dt.datetime) -> str:
    """Text that sorts as the times do, which have the same zone."""
    return f"{(ts - _EPOCH) // _MICROSECOND:020d}"


def _items(place: TaskTable, page: int = MAX_KEYS // 10) -> Iterator[tuple[str, Any]]:
    """The keys and values of a table, sorted by key; each page is of one moment."""
    after = ""
    while keys := place.run(lambda table, after=after: table.keys("", page, after)):  # type: ignore[misc]
        after = keys[-1]
        found = place.run(lambda table, keys=keys: table.get_many(keys))  # type: ignore[misc]
        yield from sorted(found.items())
