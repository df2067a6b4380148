"""The trace context in the headers of a message, and the attributes of its destination."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shmq.api.names import is_reply_name

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


GROUP: Final = "messaging.consumer.group.name"
_NAME: Final = "messaging.destination.name"
_TEMPLATE: Final = "messaging.destination.template"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A queue, stream or exchange of one broker, as attributes. It can be pickled."""

    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, url: str | None) -> Place:
        """The broker alone, of the server at ``url`` or of this host."""
        attributes: dict[str, Any] = {"messaging.system": "shmq"}
        if url is not None:
            parts = urlsplit(url)
            attributes |= {"server.address": parts.hostname or "", "server.port": parts.port or 0}
        return cls(attributes)

    def at(self, name: str) -> Place:
        """The destination ``name`` of the same broker. Reply queues have their names by chance."""
        more: dict[str, Any] = {_NAME: name}
        if is_reply_name(name):
            more |= {
                _TEMPLATE: "(reply)",
                "messaging.destination.anonymous": True,
                "messaging.destination.temporary": True,
            }
        return Place({**self.attributes, **more})

    def within(self, group: str) -> Place:
        """The same destination, consumed by the members of a group."""
        return Place({**self.attributes, GROUP: group})

    @property
    def label(self) -> str:
        """The destination in the names of spans."""
        return str(self.attributes.get(_TEMPLATE) or self.attributes.get(_NAME, ""))

    @property
    def dimensions(self) -> dict[str, Any]:
        """The attributes of metrics: those with few values."""
        dropped = _NAME if _TEMPLATE in self.attributes else None
        return {name: value for name, value in self.attributes.items() if name != dropped}
