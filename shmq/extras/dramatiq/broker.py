"""The broker of dramatiq over queues of shmq."""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dramatiq import Broker, Message, Middleware
from dramatiq.errors import ActorNotFound, ConnectionClosed, QueueJoinTimeout, QueueNotFound
from dramatiq.results import Results

import shmq
from shmq.extras.dramatiq.consumer import ShmqConsumer
from shmq.extras.frameworks.greenlets import has_greenlets
from shmq.extras.frameworks.task_queues import Connection, TaskQueues
from shmq.native import _clock as time

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

#: The priority of a message that names none: the lowest, as with RabbitMQ.
LOWEST: Final = 0
#: How long dead letters stay, in seconds: seven days, as with dramatiq's other brokers.
DEAD_LETTER_TTL: Final = 7 * 86_400.0


class ShmqBroker(Broker):
    """A broker of dramatiq over queues of shmq.

    ``url`` is a namespace of this host, ``shmq://HOST:PORT`` or ``shmqs://HOST:PORT``; None: as for
    :func:`shmq.connect`, which ``token`` and ``tls`` are for as well. Nothing is connected before
    the first message is sent or consumed. A queue of dramatiq is the queue ``prefix`` + its name of
    shmq, made at its first use with the ``options`` of :class:`shmq.QueueOptions`, such as
    ``durability="journal"``; its dead letters stay for seven days. A message is put with its delay,
    and with the priority of its or its actor's option ``broker_priority``, 0 to 9, higher first. A
    put waits up to ``put_timeout`` seconds for room in a full queue, then raises
    :class:`~shmq.Full`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        middleware: list[Middleware] | None = None,
        token: str | None = None,
        tls: Tls = None,
        prefix: str = "",
        put_timeout: float = 30.0,
        **options: Any,
    ) -> None:
        _reject_gevent()
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self.actor_options |= {"broker_priority"}
        self._put_timeout = put_timeout
        options = {"dead_letter_ttl": DEAD_LETTER_TTL} | options
        self._shared = TaskQueues(Connection(url, token, tls), prefix, options)

    # ---- declarations ----

    def declare_queue(self, queue_name: str) -> None:
        """Declare the queue; it is made in shmq when it is first used."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """The names of all declared queues."""
        return self.queues.copy()

    def _check_declared(self, queue_name: str) -> str:
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        return queue_name

    # ---- messages ----

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> ShmqConsumer:
        """A consumer of the queue. Raises ConnectionClosed."""
        try:
            queue = self._shared.open(queue_name)
            return ShmqConsumer(queue, prefetch, timeout, partial(self._store_failure, queue_name))
        except (shmq.ConnectionLost, shmq.ShuttingDown) as error:
            raise ConnectionClosed(error) from error

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Put the message, to be delivered after ``delay`` ms: the queue holds it until then.

        Raises :class:`~shmq.Full` and the other errors of a put, and ConnectionClosed.
        """
        self.emit_before("enqueue", message, delay)
        try:
            self._shared.put(
                message.queue_name,
                message.encode(),
                timeout=self._put_timeout,
                delay=None if delay is None else max(0, delay) / 1000,
                priority=self._priority(message),
                headers={"actor": message.actor_name, "message_id": message.message_id},
            )
        except (shmq.ConnectionLost, shmq.ShuttingDown) as error:
            raise ConnectionClosed(error) from error
        self.emit_after("enqueue", message, delay)
        return message

    def _priority(self, message: Message[Any]) -> int:
        """The priority of the message, or else of its actor; None is as none given."""
        actor = self.actors.get(message.actor_name)
        for options in (message.options, {} if actor is None else actor.options):
            given = options.get("broker_priority")
            if given is not None:
                try:
                    return operator.index(given)
                except TypeError:
                    raise TypeError(
                        f"broker_priority={given!r} must be a whole number from 0 to 9"
                    ) from None
        return LOWEST

    def _store_failure(
        self, queue_name: str, leased: shmq.Message, error: Exception | None
    ) -> None:
        """Store an error as the result of a message that no actor handles: dramatiq only logs it.

        ``error`` is that of its decoding; if it is None, the actor may be unknown.
        """
        name, message_id = leased.headers.get("actor"), leased.headers.get("message_id")
        results = next((each for each in self.middleware if isinstance(each, Results)), None)
        if results is None or not isinstance(name, str) or not isinstance(message_id, str):
            return
        actor = self.actors.get(name)
        if actor is None:
            error = error or ActorNotFound(
                f"the workers of queue {queue_name!r} do not have an actor {name!r}: start them "
                f"with the module that declares it"
            )
        elif not actor.options.get("store_results", results.store_results):
            return
        if error is not None:
            message = Message[Any](queue_name, name, (), {}, {}, message_id=message_id)
            try:
                results.backend.store_exception(message, error, results.result_ttl)
            except Exception:
                self.logger.exception("The outcome of message %s cannot be stored", message_id)

    # ---- whole queues ----

    def flush(self, queue_name: str) -> None:
        """Drop all messages of the queue, delayed ones and dead letters too; not what is leased."""
        self._shared.queue(self._check_declared(queue_name)).purge()
        dead = self._shared.dead_letters(queue_name)
        if dead is not None:
            with dead:
                dead.purge()

    def flush_all(self) -> None:
        """Flush every declared queue."""
        for name in self.get_declared_queues():
            self.flush(name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Wait until the queue has no message, delayed and leased ones included; for tests.

        One that is on its way to the dead-letter queue is included, too. It looks every
        ``interval`` ms. Raises QueueJoinTimeout after ``timeout`` ms.
        """
        queue = self._shared.queue(self._check_declared(queue_name))
        deadline = None if timeout is None else time.monotonic() + timeout / 1000
        while True:
            stats = queue.stats()
            if not stats.depth + stats.delayed + stats.in_flight + stats.dying:
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """How many messages are to be delivered, delayed, and dead letters."""
        stats = self._shared.queue(self._check_declared(queue_name)).stats()
        dead = self._shared.dead_letters(queue_name)
        if dead is None:
            return stats.depth, stats.delayed, 0
        with dead:
            return stats.depth, stats.delayed, dead.qsize()

    def close(self) -> None:
        """Close all connections; what consumers have leased returns to its queue."""
        self._shared.close()


def _reject_gevent() -> None:
    if has_greenlets():
        raise RuntimeError(
            "ShmqBroker waits in C code, which would stop all greenlets of gevent: run the "
            "workers with the command dramatiq, not dramatiq-gevent"
        )
