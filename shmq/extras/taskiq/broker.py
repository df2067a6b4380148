"""The broker of taskiq over queues of shmq."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final, TypeVar

from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqResult
from taskiq.acks import parse_acknowledge_type

import shmq
from shmq.client.shared import loop_timer
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.frameworks.task_queues import Connection, TaskQueues
from shmq.extras.taskiq.formatter import ShmqFormatter
from shmq.extras.taskiq.in_hand import MessagesInHand

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

log = getLogger("taskiq.shmq")

#: The pause before a worker asks for messages again after it lost its queue, in seconds.
PAUSE: Final = 1.0

#: The errors after which a worker asks again: its server is away, or its queue was deleted.
QUEUE_IS_AWAY: Final = (shmq.ConnectionLost, shmq.ShuttingDown, shmq.QueueDeleted, shmq.NoSuchQueue)

T = TypeVar("T", int, float, str)


class ShmqBroker(AsyncBroker):
    """A broker of taskiq over queues of shmq.

    ``url`` is a namespace of this host, ``shmq://HOST:PORT`` or ``shmqs://HOST:PORT``; None: as for
    :func:`shmq.connect`, which ``token`` and ``tls`` are for as well. Workers take the tasks of
    ``queue``, the queue ``prefix`` + its name of shmq, made at its first use with the ``options``
    of :class:`shmq.QueueOptions`, such as ``durability="journal"``. A worker leases up to
    ``prefetch`` messages beyond those that it has started; these are not for other workers.

    Labels of a task, or of one call: ``queue_name``, ``delay`` and ``ttl`` in seconds, ``priority``
    from 0 to 9, higher first, and ``group``, whose tasks run one at a time, in order. A put waits
    up to ``put_timeout`` seconds for room in a full queue.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queue: str = "taskiq",
        token: str | None = None,
        tls: Tls = None,
        prefix: str = "",
        prefetch: int = 1,
        put_timeout: float = 30.0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.formatter = ShmqFormatter(self)
        self._queue_name = queue
        self._prefetch = prefetch
        self._put_timeout = put_timeout
        self._shared = TaskQueues(Connection(url, token, tls), prefix, options)
        self._in_hand = MessagesInHand()
        self.add_middlewares(self._in_hand)

    async def shutdown(self) -> None:
        """Close all connections; what was not acknowledged returns to its queue."""
        await super().shutdown()
        await run_blocking(self._shared.close)

    async def kick(self, message: BrokerMessage) -> None:
        """Put a task.

        Raises ValueError for a label that is not a number, an unknown ``ack_type`` and an empty
        task id, :class:`~shmq.Full`, and the other errors of a put.
        """
        labels = message.labels
        _check_message(message)
        name = str(labels.get("queue_name", self._queue_name))
        properties: dict[str, Any] = {
            "delay": _read_label(labels, "delay", float),
            "ttl": _read_label(labels, "ttl", float),
            "group": _read_label(labels, "group", str),
            "priority": _read_label(labels, "priority", int) or 0,
            "headers": {"task": message.task_name, "task_id": message.task_id},
            "timeout": self._put_timeout,
        }
        queue = await self._queue(name)
        try:
            await queue.aput(message.message, **properties)
        except (shmq.QueueDeleted, shmq.NoSuchQueue):
            await run_blocking(self._shared.forget, name, queue)
            await (await self._queue(name)).aput(message.message, **properties)

    async def _queue(self, name: str) -> shmq.Queue:
        queue = self._shared.at_hand(name)
        return await run_blocking(self._shared.queue, name) if queue is None else queue

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The tasks of the broker's queue, for a worker; without end."""
        while True:
            queue = None
            try:
                queue = await run_blocking(self._shared.open, self._queue_name)
                async with queue.aconsume(self._prefetch) as messages:
                    async for message in messages:
                        data = bytes(message.view)
                        task_id = await self._check_readable(message, data)
                        self._in_hand.hold(task_id, message)
                        ack = partial(self._acknowledge, task_id, message)
                        yield AckableMessage(data=data, ack=ack)
            except QUEUE_IS_AWAY as error:
                log.warning("Queue %r is away: %s", self._queue_name, error)
                if queue is not None:
                    queue.close()
                await loop_timer.sleep(PAUSE)

    def _acknowledge(self, task_id: str, message: shmq.Message) -> None:
        self._in_hand.release(task_id, message)
        _ack(message)

    async def _check_readable(self, message: shmq.Message, data: bytes) -> str:
        """Store an error as the result of a task that taskiq will not run: it only logs why.

        Returns the task's ID, empty for a message without one.
        """
        task_id = message.headers.get("task_id")
        try:
            read = self.formatter.loads(data)
            read.parse_labels()
        except Exception as error:  # noqa: BLE001 - of any formatter and serializer
            reason: Exception = ValueError(
                f"the workers of queue {self._queue_name!r} cannot read the task: "
                f"{type(error).__name__}: {error}"
            )
        else:
            if self.find_task(read.task_name) is not None:
                return read.task_id
            task_id = read.task_id
            reason = LookupError(
                f"the workers of queue {self._queue_name!r} do not have a task "
                f"{read.task_name!r}: start them with the module that declares it"
            )
        if not isinstance(task_id, str):
            return ""
        await self._store_failure(task_id, reason)
        return task_id

    async def _store_failure(self, task_id: str, error: Exception) -> None:
        result = TaskiqResult[Any](is_err=True, return_value=None, execution_time=0.0, error=error)
        try:
            await self.result_backend.set_result(task_id, result)
        except Exception:
            log.exception("The outcome of task %r cannot be stored", task_id)


def _check_message(message: BrokerMessage) -> None:
    """Raise ValueError for what a worker or the caller of `wait_result` would reject later."""
    if not message.task_id:
        raise ValueError("a task id must have at least one character, not ''")
    ack_type = message.labels.get("ack_type")
    if ack_type is not None:
        parse_acknowledge_type(ack_type)


def _ack(message: shmq.Message) -> None:
    """Acknowledge the message; one whose lease is over is delivered again, and only logged."""
    try:
        message.ack()
    except (shmq.LeaseExpired, *QUEUE_IS_AWAY) as error:
        log.warning("Message %d is delivered again: %s", message.sequence, error)


def _read_label(labels: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """The label as that kind; None without it. Taskiq sends every label as a str."""
    given = labels.get(name)
    if given is None:
        return None
    try:
        return kind(given)
    except (TypeError, ValueError):
        raise ValueError(f"label {name}={given!r} must be of type {kind.__name__}") from None
