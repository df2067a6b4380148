"""Traces and metrics by OpenTelemetry: ``pip install 'shmq[otel]'``.

The handles of an instrumented broker are proxies of its plain ones: see `instrument`. Without it,
or the environment's ``SHMQ_OTEL=1``, nothing here is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.errors import ShmqError
from shmq.lazy_imports import late_imports

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from shmq.api.broker import Broker


def instrument(
    broker: Broker,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Broker:
    """The same broker with spans and metrics; its messages carry the W3C trace context.

    The providers are by default OpenTelemetry's global ones. Only what is done through the returned
    broker, and through the handles that it opens, is recorded. Closing either closes both. Raises
    :class:`~shmq.ShmqError` if ``shmq[otel]`` is not installed.
    """
    try:
        with late_imports:
            import opentelemetry.metrics  # noqa: PLC0415 - of the extra "otel"
            import opentelemetry.trace  # noqa: F401, PLC0415
    except ImportError as error:
        raise ShmqError(
            "tracing takes opentelemetry-api, which is not installed: "
            "pip install 'shmq[otel]', or unset SHMQ_OTEL"
        ) from error
    with late_imports:
        from shmq.extras.otel.proxy import traced_broker  # noqa: PLC0415 - it takes what was just checked

    return traced_broker(broker, tracer_provider, meter_provider)
