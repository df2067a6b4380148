"""Puts through a network transport that do not wait for each other's answers."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from shmq import api, errors
from shmq.client.handles.put import encode, has_dedupe_id


def refused(
    taken: int,
    failures: dict[int, errors.ShmqError],
    unknown: list[int],
    name: str,
    unconfirmed: dict[int, errors.ShmqError] | None = None,
) -> errors.PutsRefused:
    """The error that says which puts of a pipeline were taken and which were not."""
    doubtful = unconfirmed or {}
    errors_of = {**doubtful, **failures}
    first = min(failures) if failures else min([*unknown, *doubtful])
    what = f"{len(failures)} refused"
    what += f", {len(unknown)} unknown" if unknown else ""
    what += f", {len(doubtful)} not known to be on disk" if doubtful else ""
    why = errors_of.get(first, "the connection was lost")
    error = errors.PutsRefused(
        f"of the puts to queue {name!r}, {taken} were taken, {what}; number {first}: {why}",
        taken,
        failures,
        unknown,
        sorted(doubtful),
    )
    error.__cause__ = errors_of.get(first)
    return error


class Pipeline(api.Pipeline):
    """Implements :class:`shmq.api.Pipeline`. For one thread at a time."""

    def __init__(
        self, queue: Any, window: int, durable: bool, is_durable: Callable[[str | None], bool]
    ) -> None:
        self._queue = queue
        self._priorities = queue.options.priorities
        self._durable = durable
        self._is_durable = is_durable
        self._flight = queue.port.flight(window)

    @property
    def taken(self) -> int:
        found: int = self._flight.taken
        return found

    def put(self, body: api.Body, **properties: Any) -> int:
        if self._flight.failures:
            self.flush()
        durable, meta, known = self._durable, None, False
        if properties or type(body) is not bytes:
            confirm = properties.pop("confirm", None)
            durable = durable if confirm is None else self._is_durable(confirm)
            known = has_dedupe_id(self._queue, properties)
            meta, body = encode(body, self._priorities, properties, default=self._queue.default)
        number: int = self._flight.begin((meta, body), known, durable)
        return number

    def flush(self) -> None:
        found = self._flight.wait()
        if not found:
            return
        failures: dict[int, errors.ShmqError] = {}
        doubtful: dict[int, errors.ShmqError] = {}
        for number, error in found.items():
            if error is not None:
                (doubtful if isinstance(error, errors.NotConfirmed) else failures)[number] = error
        unknown = [number for number, error in found.items() if error is None]
        raise refused(self.taken, failures, unknown, self._queue.name, doubtful)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()
        else:
            self._flight.leave()
