"""The loss of its server, for a loop of short waits."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from shmq.errors import ConnectionLost, ShmqError, ShuttingDown
from shmq.native import _clock as time

#: How long a server may be away, in seconds: as long as a request reconnects by default.
LONGEST: Final = 30.0


class Outage:
    """A block in which a loss of the server is no error, unless it lasts for ``longest`` seconds.

    A get or consume with a timeout reconnects no longer than that, so a loop that waits in slices,
    in order to look for something else in between, has each of its steps in this block: one whose
    server is away ends early, and the next one reconnects. ``tell`` is called with the first error.
    """

    def __init__(self, tell: Callable[[ShmqError], None], longest: float = LONGEST) -> None:
        self._tell = tell
        self._longest = longest
        #: When the first error came, on time.monotonic(); None: the server is there.
        self._began: float | None = None

    def end(self) -> None:
        """Note within the block that the server is there; its normal end says so, too."""
        self._began = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, ConnectionLost | ShuttingDown):
            self.end()
            return False
        now, began = time.monotonic(), self._began
        if began is None:
            self._began = now
        if self._longest <= (0.0 if began is None else now - began):
            return False
        if began is None:
            self._tell(error)
        return True
