"""What Prometheus' own parser reads in a page of metrics."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families


def families(text: bytes) -> list[Metric]:
    """The families of the page. Raises ValueError for text that is not OpenMetrics."""
    return list(text_string_to_metric_families(text.decode()))
