"""Handlers of traced workers, whose spans are written to the file that ``SPANS`` names."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import shmq
from tests.support.telemetry import links_of, parent_of, trace_of


class FileExporter(SpanExporter):
    """Writes a line for each span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ["SPANS"]).open("a") as lines:
            for span in spans:
                told = (span.name, trace_of(span), parent_of(span), links_of(span))
                lines.write(json.dumps((*told, dict(span.attributes or {}))) + "\n")
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing is open."""


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
trace.set_tracer_provider(provider)


def act(message: shmq.Message) -> None:
    if message.body == "good":
        with message:  # it is being processed already, so that there is no second span
            pass
    with trace.get_tracer("app").start_as_current_span("work"):
        if message.body == "again" and message.delivery_count == 1:
            raise shmq.Retry(0)
        if message.body == "bad":
            raise shmq.Reject("never")


async def act_later(message: shmq.Message) -> None:
    act(message)
