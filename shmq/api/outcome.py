"""The exceptions by which a handler decides the outcome of its message."""

from __future__ import annotations

from shmq.api.options import check_seconds

__all__ = ["Reject", "Retry"]


class Reject(Exception):
    """Raised by a handler: the message can never be handled, and becomes a dead letter."""


class Retry(Exception):
    """Raised by a handler: the message must be handled again, and nothing is wrong.

    ``delay`` is in seconds; None takes the queue's back-off. The delivery counts as any other. The
    constructor raises :class:`~shmq.InvalidOption` for a delay out of range.
    """

    def __init__(self, delay: float | None = None) -> None:
        if delay is not None:
            check_seconds("delay", delay, 0.0)
        super().__init__("as the queue's back-off says" if delay is None else f"in {delay} s")
        self.delay = delay
