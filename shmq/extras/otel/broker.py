"""A broker whose handles are traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from shmq.api.broker import Broker
from shmq.api.contract import unwrapped
from shmq.extras.otel.context import link_of
from shmq.extras.otel.exchange import TracedExchange
from shmq.extras.otel.operation import Operation
from shmq.extras.otel.place import Place
from shmq.extras.otel.proxy import Traced, implement
from shmq.extras.otel.queue import TracedQueue
from shmq.extras.otel.telemetry import Telemetry
from shmq.lazy_imports import late_imports

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from shmq.extras.otel.stream import TracedStream, TracedSubscription
    from shmq.extras.otel.transaction import TracedTransaction


class TracedBroker(Traced):
    """A traced `Broker`."""

    __slots__ = ()

    # ---- handles ----

    def _queue(self, queue: Any) -> TracedQueue:
        return TracedQueue(queue, self._telemetry, self._place.at(queue.name))

    def create_queue(self, name: str, **options: Any) -> TracedQueue:
        return self._queue(self.__wrapped__.create_queue(name, **options))

    def queue(self, name: str) -> TracedQueue:
        return self._queue(self.__wrapped__.queue(name))

    def put_target(self, name: str) -> TracedQueue:
        return self._queue(self.__wrapped__.put_target(name))

    def ensure_queue(self, name: str, **options: Any) -> TracedQueue:
        return self._queue(self.__wrapped__.ensure_queue(name, **options))

    def _exchange(self, exchange: Any) -> TracedExchange:
        return TracedExchange(exchange, self._telemetry, self._place.at(exchange.name))

    def create_exchange(self, name: str, *how: Any, **options: Any) -> TracedExchange:
        return self._exchange(self.__wrapped__.create_exchange(name, *how, **options))

    def exchange(self, name: str) -> TracedExchange:
        return self._exchange(self.__wrapped__.exchange(name))

    def ensure_exchange(self, name: str, *how: Any, **options: Any) -> TracedExchange:
        return self._exchange(self.__wrapped__.ensure_exchange(name, *how, **options))

    def _stream(self, stream: Any) -> TracedStream:
        with late_imports:
            from shmq.extras.otel.stream import TracedStream  # noqa: PLC0415 - of streams alone

        return TracedStream(stream, self._telemetry, self._place.at(stream.name))

    def create_stream(self, name: str, *how: Any, **options: Any) -> TracedStream:
        return self._stream(self.__wrapped__.create_stream(name, *how, **options))

    def stream(self, name: str) -> TracedStream:
        return self._stream(self.__wrapped__.stream(name))

    def ensure_stream(self, name: str, **options: Any) -> TracedStream:
        return self._stream(self.__wrapped__.ensure_stream(name, **options))

    def subscribe(self, stream: str, *where: Any, **how: Any) -> TracedSubscription:
        return self.stream(stream).subscribe(*where, **how)

    def typed(self, *of: Any, **how: Any) -> Any:
        # Its puts are those of the traced handle.
        return type(self.__wrapped__).typed(self, *of, **how)

    def transaction(self, **how: Any) -> TracedTransaction:
        with late_imports:
            from shmq.extras.otel.transaction import TracedTransaction  # noqa: PLC0415 - of streams, too

        begun = self.__wrapped__.transaction(**how)
        return TracedTransaction(begun, self._telemetry, self._place)

    # ---- requests ----

    def _requesting(self, queue: Any, properties: dict[str, Any]) -> Operation:
        place = self._place.at(str(getattr(queue, "name", queue)))
        headers = properties.get("headers")
        sending = self._telemetry.send(place, headers, "request")
        properties["headers"] = sending.headers(headers)
        return sending

    def request(
        self, queue: Any, body: Any, timeout: float | None = None, **properties: Any
    ) -> Any:
        # The span lasts until the reply, and links to it.
        with self._requesting(queue, properties) as sending:
            reply = self.__wrapped__.request(unwrapped(queue), body, timeout, **properties)
            sending.link(link_of(reply.headers))
        return reply

    async def arequest(
        self, queue: Any, body: Any, timeout: float | None = None, **properties: Any
    ) -> Any:
        with self._requesting(queue, properties) as sending:
            reply = await self.__wrapped__.arequest(unwrapped(queue), body, timeout, **properties)
            sending.link(link_of(reply.headers))
        return reply

    def serve(self, queue: Any, handler: Callable[[Any], Any], **how: Any) -> Any:
        # It opens its queues, for replies too, as this broker.
        opened = self.queue(queue) if isinstance(queue, str) else queue
        traced = handler
        if callable(handler) and isinstance(opened, TracedQueue):
            traced = opened.processing(handler)
        try:
            return type(self.__wrapped__).serve(self, opened, traced, **how)
        finally:
            if opened is not queue:
                opened.close()


def traced_broker(
    broker: Broker, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
) -> Broker:
    """The proxy of a broker; one that is traced already is traced anew."""
    plain = unwrapped(broker)
    telemetry = Telemetry(tracer_provider, meter_provider)
    return cast("Broker", TracedBroker(plain, telemetry, Place.of(getattr(plain, "url", None))))


implement(Broker, TracedBroker)
