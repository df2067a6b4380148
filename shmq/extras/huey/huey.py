"""Huey whose consumers lease the tasks they run, so that one that is killed loses none."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from functools import partial
from logging import getLogger
from typing import Any, Final

from huey.api import Huey, PeriodicTask, Task
from huey.serializer import Serializer
from huey.signals import SIGNAL_INTERRUPTED
from huey.utils import Error

import shmq
from shmq.api.names import is_url
from shmq.errors import InvalidOption
from shmq.extras.frameworks.task_table import ResultNotStored
from shmq.extras.huey.storage import ShmqStorage, TaskBytes, find_target

logger = getLogger("huey.shmq")

#: The attributes of a task: its leased message, its entry in the schedule, its minute of a crontab.
_LEASED: Final = "_shmq_leased"
_ENTRY: Final = "_shmq_entry"
_TICK: Final = "_shmq_tick"

#: How long an interrupted task is delayed, in seconds, besides the wait of a `dequeue` that has
#: begun: for so long other workers of the consumer that ends might still take it.
_STOPPING: Final = 1.0

#: The errors after which a lease has ended: the task is in its queue again, or deleted with it.
_LEASE_HAS_ENDED: Final = (
    shmq.LeaseExpired,
    shmq.ConnectionLost,
    shmq.QueueDeleted,
    shmq.NoSuchQueue,
)


class ShmqHuey(Huey):
    """A :class:`huey.Huey` over shmq; the keywords beyond those of Huey are of `ShmqStorage`.

    A consumer leases a task until it has run. If the consumer is killed, another one runs the task;
    after ``max_deliveries`` of them it is a dead letter. A scheduled task leaves the schedule when
    it is in the queue, and consumers that share a crontab enqueue each of its minutes once.

    Tasks are pickled by default, and a task of a server could run code here: with the URL of a
    server, ``serializer`` must be another than huey's default, such as its ``SignedSerializer``.
    Raises :class:`~shmq.InvalidOption`.
    """

    storage_class = ShmqStorage

    def __init__(
        self, name: str = "huey", *, serializer: Serializer | None = None, **options: Any
    ) -> None:
        url = find_target(options.get("url"))
        if is_url(url) and type(serializer or Serializer()) is Serializer:
            raise InvalidOption(
                f"huey pickles by default, and who writes to a queue of {url} could run "
                f"code here: give ShmqHuey a serializer, such as SignedSerializer(secret=...)"
            )
        #: The task that this thread executes, and whether a signal has interrupted it.
        self._executing = threading.local()
        super().__init__(name, serializer=serializer, **options)
        self.signal(SIGNAL_INTERRUPTED)(self._note_interrupt)

    # ---- from the queue ----

    def dequeue(self) -> Task | None:
        """Lease the next task. One that cannot be decoded is a dead letter, and raises."""
        if not isinstance(self.storage, ShmqStorage):  # that of immediate mode
            return super().dequeue()
        leased = self.storage.lease()
        if leased is None:
            return None
        try:
            task = self.deserialize_task(bytes(leased.body))
        except Exception as error:
            _settle(leased, partial(leased.reject, error))
            raise
        setattr(task, _LEASED, leased)
        return task

    def execute(self, task: Task, timestamp: dt.datetime | None = None) -> Any:
        """Run the task, then acknowledge it; one that ends in an error of huey is a dead letter."""
        leased, entry = (task.__dict__.pop(name, None) for name in (_LEASED, _ENTRY))
        self._executing.task, self._executing.interrupted = task, False
        try:
            value = super().execute(task, timestamp)
        except BaseException as error:
            if leased is not None:
                _settle(leased, partial(leased.reject, error))
            raise
        if leased is not None:
            give_back = partial(leased.nack, _STOPPING + self.storage.read_timeout, counted=False)
            _settle(leased, give_back if self._executing.interrupted else leased.ack)
        if entry is not None:
            self.storage.unschedule(entry)
        return value

    def _note_interrupt(self, _signal: str, task: Task, *_args: Any) -> None:
        """Note that the task was stopped: huey swallows it, and its consumer is about to end.

        The consumer's main thread reports the tasks of its threads, too, which still run: their
        leases end with the process.
        """
        if getattr(self._executing, "task", None) is task:
            self._executing.interrupted = True

    # ---- into the queue ----

    def serialize_task(self, task: Task) -> bytes:
        """Encode the task, with the id that keeps schedulers from enqueuing it twice."""
        data = TaskBytes(super().serialize_task(task))
        data.dedupe_id = getattr(task, _ENTRY, None) or getattr(task, _TICK, None)
        return data

    def enqueue(self, task: Any) -> Any:
        """Put the task, and remove it from the schedule if it is of it."""
        entry = getattr(task, _ENTRY, None)
        if entry is None:
            return super().enqueue(task)
        if not self.storage.is_scheduled(entry):
            return None  # another scheduler was faster
        result = super().enqueue(task)
        delattr(task, _ENTRY)
        self.storage.unschedule(entry)
        return result

    def read_schedule(self, timestamp: dt.datetime | None = None) -> list[Task]:
        """The tasks that are due: each stays in the schedule until it is enqueued or executed.

        One that cannot be decoded is moved to the queue, whose workers make it a dead letter.
        """
        if not isinstance(self.storage, ShmqStorage):
            found: list[Task] = super().read_schedule(timestamp)
            return found
        tasks = []
        for key, data in self.storage.find_due(timestamp or self._get_timestamp()):
            try:
                task = self.deserialize_task(data)
            except Exception:  # of any serializer, or an unknown task
                logger.exception("A scheduled task cannot be decoded: moved to the queue.")
                self.storage.enqueue(data)
                self.storage.unschedule(key)
            else:
                setattr(task, _ENTRY, key)
                tasks.append(task)
        return tasks

    def read_periodic(self, timestamp: dt.datetime | None) -> list[PeriodicTask]:
        """The periodic tasks of this minute, which any number of consumers enqueue once."""
        now = timestamp or self._get_timestamp()
        tasks: list[PeriodicTask] = super().read_periodic(now)
        for task in tasks:
            setattr(task, _TICK, f"{type(task).__module__}.{task.name}@{now:%Y-%m-%dT%H:%M}")
        return tasks

    # ---- results ----

    def put_result(self, key: str, data: Any) -> Any:
        """Store the result; if it cannot be stored, the error instead, so that no caller waits."""
        try:
            return super().put_result(key, data)
        except (shmq.ConnectionLost, shmq.NoSpace):
            raise  # no error could be stored either
        except Exception as error:  # of any serializer, or it is too large
            logger.exception("The result of task %s cannot be stored.", key)
            text = repr(ResultNotStored.of(error))
            about = {"error": text, "retries": 0, "traceback": text, "task_id": key}
            return super().put_result(key, Error(about))


def _settle(leased: shmq.Message, settle: Callable[[], None]) -> None:
    """Settle the task; one whose lease has ended is delivered again, and only logged.

    While a lock is held by a process that is stopped it tries again, each time for a second.
    """
    while True:
        try:
            settle()
        except shmq.LockTimeout as error:
            logger.warning("The task in message %d has run: %s", leased.sequence, error)
            continue
        except _LEASE_HAS_ENDED as error:
            logger.warning("The task in message %d may run again: %s", leased.sequence, error)
        return
