"""OpenTelemetry's own SDK with exporters in memory, for tests of what is exported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import shmq
from shmq.extras.otel import instrument


class Recorder:
    """The providers for a test, and what was recorded through them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter_provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def instrument(self, broker: shmq.Broker) -> shmq.Broker:
        return instrument(
            broker, tracer_provider=self.tracer_provider, meter_provider=self.meter_provider
        )

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """The spans that have ended, or those of that name."""
        found: Iterable[ReadableSpan] = self._exporter.get_finished_spans()
        return [span for span in found if name in (None, span.name)]

    def span(self, name: str) -> ReadableSpan:
        """The one span of that name."""
        (found,) = self.spans(name)
        return found

    def clear(self) -> None:
        self._exporter.clear()

    def points(self, metric: str) -> list[Any]:
        """The data points of a metric."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for found in scope.metrics
            if found.name == metric
            for point in found.data.data_points
        ]


def trace_of(span: ReadableSpan) -> tuple[int, int]:
    """What others refer to it by."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    """What it links to."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)
