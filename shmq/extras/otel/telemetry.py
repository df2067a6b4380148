"""The tracer and the instruments of one broker, and the operations that they record."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind

from shmq.extras.otel.context import carries_context, link_of, links_of
from shmq.extras.otel.operation import HANDLED, PARTITION, Kind, Operation, harmless
from shmq.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from shmq.extras.otel.context import Place

#: The bounds of the buckets that the conventions advise, in seconds.
_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class Telemetry:
    """The operations of the messaging conventions, each as an `Operation` to be finished."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("shmq", VERSION, tracer_provider)
        meter = metrics.get_meter("shmq", VERSION, meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that were to be sent."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were received."
        )
        histogram = functools.partial(
            meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=_BOUNDS
        )
        self._operations = histogram(
            "messaging.client.operation.duration", description="Time of one operation."
        )
        self._processing = histogram(
            "messaging.process.duration", description="Time of the processing of a message."
        )

    def _operation(self, place: Place, name: str, kind: Kind) -> Operation:
        return Operation(self._tracer, self._measure, place, name, kind)

    def send(self, place: Place, headers: object = None, name: str = "send") -> Operation:
        """A send, begun. If the headers have a context, it is linked and stays the message's."""
        sending = self._operation(place, name, "send")
        if carries_context(headers):
            sending.span_kind = SpanKind.CLIENT
            with harmless():
                link = link_of(headers)
                sending.links = [] if link is None else [link]
        return sending.start()

    def send_encoded(self, place: Place) -> Operation:
        """A send of what is encoded already, so that it gets no context."""
        sending = self._operation(place, "send", "send")
        sending.span_kind = SpanKind.CLIENT
        return sending.start()

    def receive(self, place: Place) -> Operation:
        """A receive; it is not recorded if nothing comes."""
        handled = HANDLED.get()
        if handled is not None and handled.subject is None:  # its call is over
            HANDLED.set(None)
        return self._operation(place, "receive", "receive")

    def process(self, place: Place, message: Any) -> Operation:
        """The processing of one message, begun."""
        processing = self._operation(place, "process", "process")
        with harmless():
            processing.links = links_of([message])
            identify(processing, message)
        return processing

    def settle(self, place: Place, name: str, *messages: Any) -> Operation:
        """A settlement, of these messages as far as they are known."""
        settling = self._operation(place, name, "settle")
        with harmless():
            settling.links = links_of(messages)
            if len(messages) == 1:
                identify(settling, messages[0])
        return settling

    def processing(self, place: Place, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The handler, with a span around each call; if it is asynchronous, within its task."""
        is_async = iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)
        step = _await_handler if is_async else _call_handler

        def call(message: Any) -> Any:
            processing = self.process(place, message)
            processing.subject = message
            HANDLED.set(processing)
            return step(handler, message, processing)

        return call

    def _measure(self, operation: Operation, seconds: float) -> None:
        """Count an operation that has ended."""
        counted = {**operation.place.dimensions, "messaging.operation.name": operation.name}
        if operation.error is not None:
            counted["error.type"] = operation.error
        if PARTITION in operation.attributes:
            counted[PARTITION] = operation.attributes[PARTITION]
        if operation.kind == "process":
            self._processing.record(seconds, counted)
            return
        typed = {**counted, "messaging.operation.type": operation.kind}
        self._operations.record(seconds, typed)
        if operation.kind == "send":
            self._sent.add(operation.count, counted)
        elif operation.kind == "receive" and operation.error is None:
            self._consumed.add(operation.count, counted)


def _call_handler(handler: Callable[[Any], Any], message: Any, processing: Operation) -> Any:
    with processing.current():
        return handler(message)


async def _await_handler(handler: Callable[[Any], Any], message: Any, processing: Operation) -> Any:
    with processing.current():
        return await handler(message)


def identify(operation: Operation, item: Any) -> None:
    """Say which message, or which record, the operation is about."""
    sequence = getattr(item, "sequence", None)
    if sequence is None:
        operation.about(item.offset, item.partition)
    else:
        operation.about(sequence)


def received_one(operation: Operation, item: Any) -> None:
    """Say of a receive which message or record came, and link it to its context."""
    with harmless():
        identify(operation, item)
        operation.links = links_of([item])


def link_received(operation: Operation, items: Iterable[Any]) -> None:
    """Link a receive to the contexts of what came."""
    with harmless():
        operation.links = links_of(items)
