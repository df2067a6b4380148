"""An exchange whose publishes are traced."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from shmq.api.exchange import Exchange
from shmq.extras.otel.proxy import Traced, implement


class TracedExchange(Traced):
    """A traced `Exchange`. All copies of a message have one context."""

    __slots__ = ()

    def publish(
        self,
        body: Any,
        key: str = "",
        block: bool | None = None,
        timeout: float | None = None,
        *,
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> Any:
        with self._telemetry.send(self._place, headers, "publish") as sending:
            properties["headers"] = sending.headers(headers)
            return self.__wrapped__.publish(body, key, block, timeout, **properties)

    def publish_many(
        self,
        bodies: Iterable[Any],
        key: str = "",
        block: bool | None = None,
        timeout: float | None = None,
        *,
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> Any:
        with self._telemetry.send(self._place, headers, "publish") as sending:
            sending.batch(operator.length_hint(bodies))
            properties["headers"] = sending.headers(headers)
            return self.__wrapped__.publish_many(bodies, key, block, timeout, **properties)


implement(Exchange, TracedExchange)
