"""The transport: a connection of kombu to a namespace of this host, or to a server."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any, Final

from kombu.transport import base, virtual
from kombu.utils.compat import detect_environment

import shmq
from shmq.api.contract import unwrapped
from shmq.client.shared.ready_event import look
from shmq.extras.celery.address import Address
from shmq.extras.celery.channel import Channel
from shmq.extras.celery.event_loop import LoopDelivery
from shmq.extras.celery.session import Session
from shmq.native import _clock as time

_failures: ModuleType | None = None
if "celery" in sys.modules:  # kombu alone has no tasks
    from shmq.extras.celery import failures as _failures

#: The most messages that one call of drain_events delivers.
_AT_ONCE: Final = 64
#: The longest wait before another look at what may be consumed, in seconds.
_SLICE: Final = 1.0
#: The pause between two looks where a wait would stop greenlets, in seconds.
_PAUSE: Final = 0.01
#: How long a request to a server may take, with all attempts to reconnect, in seconds.
_REQUEST_TIMEOUT: Final = 10.0


class Transport(virtual.Transport):
    """``shmq://NAMESPACE``, ``shmq://`` for the default namespace, ``shmq://HOST:PORT``."""

    Channel = Channel
    driver_type = "shmq"
    driver_name = "shmq"
    polling_interval = None
    implements = base.Transport.implements.extend(asynchronous=True)
    connection_errors = (
        *virtual.Transport.connection_errors,
        *(shmq.ConnectionLost, shmq.ShuttingDown, shmq.QueueDeleted, shmq.NoSuchQueue),
    )
    recoverable_connection_errors = connection_errors
    channel_errors = (*virtual.Transport.channel_errors, shmq.LockTimeout, shmq.Forbidden)
    recoverable_channel_errors = channel_errors

    def __init__(self, client: Any, **more: Any) -> None:
        super().__init__(client, **more)
        self._session: Session | None = None
        self._loop_delivery: LoopDelivery | None = None
        self._turn = 0
        #: Set when a message was settled, which makes room in the window of a channel.
        self.settled = threading.Event()

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """Nothing: without a host the URL means the default namespace."""
        return {}

    @property
    def session(self) -> Session:
        """The broker and its handles; a child of a fork opens its own.

        Raises what :func:`shmq.connect` raises.
        """
        if self._session is None or not self._session.is_own:
            client = self.client
            address = Address.of(
                client.hostname,
                client.port,
                client.virtual_host,
                client.userid,
                client.password,
                client.ssl,
            )
            timeout = client.transport_options.get("request_timeout", _REQUEST_TIMEOUT)
            self._session = Session(address.connect(client.connect_timeout or 5.0, timeout))
        return self._session

    def driver_version(self) -> str:
        """The version of shmq."""
        return str(shmq.__version__)

    def establish_connection(self) -> Any:
        """Open the broker; a server is asked whether it is there."""
        self.session.broker.list_exchanges()
        return super().establish_connection()

    def verify_connection(self, connection: Any) -> bool:
        """Whether the broker is open in this process."""
        return self._session is not None and self._session.is_own

    def close_connection(self, connection: Any) -> None:
        """Close the channels, which return what they hold, and the broker."""
        if self._loop_delivery is not None:
            self._loop_delivery.close()
            self._loop_delivery = None
        try:
            super().close_connection(connection)
        finally:
            session, self._session = self._session, None
            if session is not None:
                session.close()

    # ---- delivery ----

    def consumes(self, queue: str) -> bool:
        """Whether a channel of this connection consumes the queue."""
        return any(queue in channel._active_queues for channel in self.channels)

    def consumed_queues(self) -> set[shmq.Queue]:
        """The queues that some channel consumes."""
        return {
            channel.session.queue(n) for channel in self.channels for n in channel._active_queues
        }

    def deliver(self, most: int, empty: set[shmq.Queue]) -> int:
        """Deliver up to ``most`` messages without waiting; returns how many.

        The queues of ``empty`` are passed over, and those that are found empty are added to it.
        """
        count, before = 0, -1
        while before < count < most:
            before = count
            sources = self._list_sources(empty)
            for parts, (channel, name) in zip(range(len(sources), 0, -1), sources, strict=True):
                count += self._deliver_from(channel, name, most - count, parts, empty)
        return count

    def _deliver_from(
        self, channel: Any, name: str, most: int, parts: int, empty: set[shmq.Queue]
    ) -> int:
        """Deliver from the first of ``parts`` queues, which share ``most`` and their windows.

        Nothing is delivered if its consumer was cancelled since the queues were listed.
        """
        if name not in channel._active_queues:
            return 0
        if not channel.has_fetched(name):
            limit = -(-channel.qos.limit_fetch(most) // parts)
            if limit <= 0:
                return 0
            fetched = channel.fetch(name, limit)
            if fetched < limit:
                empty.add(channel.session.queue(name))
            if fetched and name not in channel.unacknowledged:
                self._deliver_control(most)
        count = 0
        while count < most and (raw := channel.pop_fetched(name)) is not None:
            count += 1
            self._turn += 1
            self._deliver(raw, name)
        return count

    def _deliver_control(self, most: int) -> None:
        """Deliver remote control that was published before the tasks that were fetched just now."""
        sources = {
            unwrapped(channel.session.queue(name)): (channel, name)
            for channel in self.channels
            for name in channel.unacknowledged.intersection(channel._active_queues)
        }
        for queue, found in look(sources).items():
            if found is not False:  # a message, or an error that the fetch raises
                self._deliver_from(*sources[queue], most, 1, set())

    def _list_sources(self, empty: set[shmq.Queue]) -> list[tuple[Any, str]]:
        """The channels that may take a message now, with the names of their queues, in order.

        Those without acknowledgements, such as remote control, come first. The others have turns.
        """
        first: list[tuple[Any, str]] = []
        others: list[tuple[Any, str]] = []
        for channel in self.channels:
            takes = channel._consumers and channel.qos.can_consume()
            for name in channel._active_queues:
                waits = takes and channel.session.queue(name) not in empty
                if waits or channel.has_fetched(name):
                    place = first if name in channel.unacknowledged else others
                    place.append((channel, name))
        turn = self._turn % len(others) if others else 0
        return first + others[turn:] + others[:turn]

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver messages; waits for the first. Raises TimeoutError after ``timeout`` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self.settled.clear()
            if self.deliver(_AT_ONCE, set()):
                return
            left = _SLICE if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._wait(min(left, _SLICE))

    def _wait(self, seconds: float) -> None:
        """Return when there may be a message to deliver, after ``seconds`` at the latest."""
        queues = [channel.session.queue(name) for channel, name in self._list_sources(set())]
        if not queues:
            self.settled.wait(seconds)
        elif detect_environment() != "default":
            time.sleep(min(seconds, _PAUSE))
        else:
            shmq.wait(queues, seconds)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver messages from this loop until the connection is closed."""
        if self._loop_delivery is not None:
            self._loop_delivery.close()
        self._loop_delivery = LoopDelivery(self, loop)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Leave the loop."""
        if self._loop_delivery is not None:
            self._loop_delivery.close()
            self._loop_delivery = None

    def send_acks(self) -> None:
        """Send the acknowledgements that no request to the server has taken along."""
        if self._session is not None and self._session.is_own:
            self._session.send_acks()

    def on_ack(self) -> None:
        """Send an acknowledgement: at the end of the loop's turn if this is its thread."""
        if self._loop_delivery is None or not self._loop_delivery.is_here:
            self.send_acks()

    def on_message_ready(self, channel: Any, message: Any, queue: str) -> None:
        """Deliver a message that was read by a loop."""
        self._deliver(message, queue)

    def task_failed(self, message: Any, error: Exception) -> None:
        """Store the failure of a message that is not delivered again, if it is a task of Celery."""
        if _failures is not None:
            _failures.store_failure(message, error)


class TlsTransport(Transport):
    """``shmqs://HOST:PORT``: a server, over TLS."""

    def __init__(self, client: Any, **more: Any) -> None:
        client.ssl = client.ssl or True
        super().__init__(client, **more)
