"""What all proxies of traced handles have in common."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from shmq.api.contract import document
from shmq.extras.otel.place import Place
from shmq.extras.otel.telemetry import Telemetry


class Traced:
    """A handle whose operations are traced; all others are those of the wrapped handle."""

    __slots__ = ("__weakref__", "__wrapped__", "_place", "_telemetry")

    def __init__(self, wrapped: Any, telemetry: Telemetry, place: Place) -> None:
        self.__wrapped__ = wrapped
        self._telemetry = telemetry
        self._place = place

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # it is not made yet
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.__wrapped__, self._place)

    def __enter__(self) -> Self:
        self.__wrapped__.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        return self.__wrapped__.__exit__(kind, error, trace)


def implement(contract: type[Any], proxy: type) -> None:
    """Register the proxy's class as one of the contract, which documents its methods."""
    contract.register(proxy)
    document(proxy, contract)


def _restored(kind: type[Traced], wrapped: Any, place: Place) -> Traced:
    """The handle in a process that has unpickled it, with that process's own providers."""
    return kind(wrapped, Telemetry(), place)
