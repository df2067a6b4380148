"""The loss of its server, for a loop of short waits."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from shmq.errors import ConnectionLost, ShmqError, ShuttingDown
from shmq.native import _clock as time

#: What is raised while the server is away: it was lost, refuses connections, or shuts down.
AWAY: Final = (ConnectionLost, ShuttingDown)
#: How long a server may be away, in seconds: as long as a request reconnects by default.
LONGEST: Final = 30.0


class Outage:
    """Ignores the loss of the server within a block, for at most ``longest`` seconds.

    A get or consume with a timeout reconnects only for that long. So a loop that waits in slices,
    to check for something else in between, runs each step in this block: one whose server is away
    ends early, and the next one reconnects. ``on_loss`` is called with the first error, and with
    another one every `LONGEST` seconds; more often if threads share the object.
    """

    def __init__(self, on_loss: Callable[[ShmqError], None], longest: float = LONGEST) -> None:
        self._on_loss = on_loss
        self._longest = longest
        #: When the first error was raised, on time.monotonic(); None: the server is reachable.
        self._began: float | None = None
        #: When ``on_loss`` was called last, on time.monotonic().
        self._reported_at = 0.0

    def end(self) -> None:
        """Record that the server was reached; leaving the block normally does so too."""
        self._began = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, AWAY):
            self.end()
            return False
        now, began = time.monotonic(), self._began
        if began is None:
            self._began = now
        if self._longest <= (0.0 if began is None else now - began):
            return False
        if began is None or now > self._reported_at + LONGEST:
            self._reported_at = now
            self._on_loss(error)
        return True
