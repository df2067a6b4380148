"""A pipeline of a queue of this host, where a put is done when it returns."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from shmq import contract
from shmq.errors import Full, NoSpace, PutsRefused, QueueDeleted, ShmqError

__all__ = ["LocalPipeline", "refused"]


def refused(
    taken: int, failures: dict[int, ShmqError], unknown: list[int], name: str
) -> PutsRefused:
    """The error that says which puts of a pipeline were taken and which were not."""
    first = min(failures) if failures else unknown[0]
    what = (
        f"{len(failures)} refused, {len(unknown)} unknown"
        if unknown
        else (f"{len(failures)} refused")
    )
    why = failures.get(first, "the connection was lost")
    error = PutsRefused(
        f"of {taken + len(failures) + len(unknown)} puts to queue {name!r}, {taken} were taken, "
        f"{what}; number {first}: {why}",
        taken,
        failures,
        unknown,
    )
    error.__cause__ = failures.get(first)
    return error


class LocalPipeline(contract.Pipeline):
    """See :class:`shmq.contract.Pipeline`."""

    def __init__(self, queue: contract.Queue) -> None:
        self._queue = queue
        self._taken = 0
        self._number = 0

    @property
    def taken(self) -> int:
        """See :class:`shmq.contract.Pipeline`."""
        return self._taken

    def put(self, body: contract.Body, **properties: Any) -> int:
        """See :class:`shmq.contract.Pipeline`."""
        number = self._number
        try:
            self._queue.put(body, **properties)
        except (Full, NoSpace, QueueDeleted) as error:
            self._number += 1
            raise refused(self._taken, {number: error}, [], self._queue.name) from error
        self._number += 1
        self._taken += 1
        return number

    def flush(self) -> None:
        """See :class:`shmq.contract.Pipeline`."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None
