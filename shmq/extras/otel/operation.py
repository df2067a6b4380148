"""One operation on messages: its span, and what the metrics are to count of it.

No failure of a tracer, a meter or an exporter reaches the application: it is logged.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from shmq.api.message import Retry
from shmq.errors import Empty
from shmq.extras.otel.context import carrier_of, carries_context
from shmq.native import _clock as time

if TYPE_CHECKING:
    from shmq.extras.otel.context import Place

log = logging.getLogger("shmq.otel")

#: The value of ``messaging.operation.type``.
Kind = Literal["send", "receive", "process", "settle"]

#: Counts an operation that has ended after so many seconds.
Measure = Callable[["Operation", float], None]

_SPAN_KINDS: Final[Mapping[Kind, SpanKind]] = {
    "send": SpanKind.PRODUCER,
    "receive": SpanKind.CLIENT,
    "process": SpanKind.CONSUMER,
    "settle": SpanKind.CLIENT,
}
PARTITION: Final = "messaging.destination.partition.id"

#: The call of a handler that has just returned: what is settled and answered now belongs to it.
HANDLED: ContextVar[Operation | None] = ContextVar("shmq_otel_handled", default=None)


@contextlib.contextmanager
def harmless() -> Iterator[None]:
    """Log an error of the block in place of raising it."""
    try:
        yield
    except Exception:
        log.warning("an operation could not be traced; it is done nevertheless", exc_info=True)


class Operation:
    """One operation. As a context manager it ends with the block, and notes its exception.

    The span of a `send` or a `process` begins with `start`, as its context is needed; that of
    another is made at the end, when its links are known, with the time of the beginning.
    """

    __slots__ = (
        *(
            "_clock",
            "_measure",
            "_span",
            "_token",
            "_tracer",
            "attributes",
            "began",
            "carrier",
            "context",
        ),
        *("count", "error", "kind", "links", "name", "place", "span_kind", "subject"),
    )

    def __init__(
        self, tracer: Tracer, measure: Measure, place: Place, name: str, kind: Kind
    ) -> None:
        self._tracer = tracer
        self._measure = measure
        self._span: Span | None = None
        self._token: Any = None
        self._clock = time.monotonic()
        self.began = time.time_ns()
        self.place = place
        self.name = name
        self.kind = kind
        self.span_kind = _SPAN_KINDS[kind]
        self.links: list[Link] = []
        self.attributes: dict[str, Any] = {}
        #: The headers that carry its context.
        self.carrier: dict[str, str] = {}
        self.context: Context | None = None
        #: How many messages it is about; 0: it is not recorded, if it is a receive.
        self.count = 1
        #: The message that a handler was called with, while it runs.
        self.subject: object = None
        #: The error's type, once it has failed.
        self.error: str | None = None

    # ---- the span ----

    def start(self) -> Self:
        """Begin the span now."""
        with harmless():
            self._span = self._begin()
            self.context = trace.set_span_in_context(self._span)
            if self.span_kind == SpanKind.PRODUCER:
                self.carrier = carrier_of(self._span)
        return self

    def _begin(self) -> Span:
        return self._tracer.start_span(
            f"{self.name} {self.place.label}".rstrip(),
            context=self._find_parent(),
            kind=self.span_kind,
            attributes={
                **self.place.attributes,
                "messaging.operation.name": self.name,
                "messaging.operation.type": self.kind,
                **self.attributes,
            },
            links=self.links,
            start_time=self.began,
        )

    def _find_parent(self) -> Context | None:
        """The handler's context for what follows its call; None: the current one."""
        handled = HANDLED.get()
        if handled is None or self.kind not in {"send", "settle"}:
            return None
        return None if trace.get_current_span().get_span_context().is_valid else handled.context

    def headers(self, given: Any) -> Any:
        """The given headers with the context; those that carry one already stay as they are."""
        if not self.carrier or carries_context(given) or not isinstance(given, Mapping | None):
            return given
        return {**(given or {}), **self.carrier}

    def attach(self) -> None:
        """Make its span the current one, until `detach`."""
        with harmless():
            if self.context is not None:
                self._token = contexts.attach(self.context)

    def detach(self) -> None:
        """Make the span before the current one again."""
        with harmless():
            if self._token is not None:
                contexts.detach(self._token)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Begin it, make its span the current one for the block, and end it."""
        self.start()
        self.attach()
        try:
            yield
        except BaseException as error:
            self.detach()
            self.finish(error)
            raise
        self.detach()
        self.finish()

    # ---- what it is about ----

    def about(self, identity: object, partition: int | None = None) -> None:
        """It is about one message, or one record of a partition."""
        self.in_partition(partition)
        shown = identity if partition is None else f"{partition}/{identity}"
        self.attributes["messaging.message.id"] = str(shown)

    def in_partition(self, partition: int | None) -> None:
        """It is about records of one partition."""
        if partition is not None:
            self.attributes[PARTITION] = str(partition)

    def batch(self, count: int) -> None:
        """It is about so many messages together."""
        self.count = count
        self.attributes["messaging.batch.message_count"] = count

    def link(self, link: Link | None) -> None:
        """It is also about a message with that context."""
        if link is not None and self._span is not None:
            self._span.add_link(link.context)

    # ---- the end ----

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.finish(error)

    def drop(self) -> None:
        """End it without a message: its span says no more, and no metric counts it."""
        with harmless():
            if self._span is not None:
                self._span.end()

    def finish(self, error: BaseException | None = None) -> None:
        """Record it, failed if there is an error."""
        self.subject = None
        with harmless():
            if not self._is_nothing(error):
                self._record(time.monotonic() - self._clock, error)

    def _is_nothing(self, error: BaseException | None) -> bool:
        """Whether it was a receive to which nothing came."""
        if self.kind != "receive":
            return False
        ended = isinstance(error, Empty | StopIteration | StopAsyncIteration)
        return ended or (error is not None and not isinstance(error, Exception)) or not self.count

    def _record(self, seconds: float, error: BaseException | None) -> None:
        span = self._span or self._begin()
        span.set_attributes(self.attributes)
        if error is not None and not isinstance(error, Retry):
            self.error = _name_type(error)
            span.set_attribute("error.type", self.error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()
        self._measure(self, seconds)


def _name_type(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"
