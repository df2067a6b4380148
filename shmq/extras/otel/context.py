"""The W3C trace context in the headers of a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

#: How many links a span has at most: what the SDK keeps by default.
MOST_LINKS: Final = 128

_PARENT: Final = "traceparent"
_STATE: Final = "tracestate"
_propagator: Final = TraceContextTextMapPropagator()


def carries_context(headers: object) -> bool:
    """Whether the headers hold a trace context already."""
    return isinstance(headers, Mapping) and _PARENT in headers


def carrier_of(span: Span) -> dict[str, str]:
    """The headers that carry the span's context; empty if it has none."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier


def link_of(headers: object) -> Link | None:
    """A link to the context in the headers; None if there is none, or no valid one."""
    if not carries_context(headers):
        return None
    assert isinstance(headers, Mapping)
    carrier = {
        name: value for name in (_PARENT, _STATE) if isinstance(value := headers.get(name), str)
    }
    found = trace.get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    return Link(found) if found.is_valid else None


def links_of(items: Iterable[Any]) -> list[Link]:
    """Links to the contexts of the first messages or records, as many as a span may have."""
    links = []
    for _, item in zip(range(MOST_LINKS), items, strict=False):
        link = link_of(item.headers)
        if link is not None:
            links.append(link)
    return links
