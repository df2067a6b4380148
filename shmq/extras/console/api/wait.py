"""How long a request may wait: for room as long as it asks, for the disk twenty seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import shmq
from shmq.extras.console.api.operation import Call

#: The longest wait of one request, in seconds.
LONGEST: Final = 20
#: How long one wait lasts before the console looks whether it ends, in seconds.
SLICE: Final = 0.5

_T = TypeVar("_T")


class Wait:
    """The time that one request has for all that it puts; ``seconds`` is what it asks for.

    With 0 it waits for no room, and for the disk as long as a request may.
    """

    def __init__(self, call: Call, seconds: float) -> None:
        self._ending = call.console.ending
        self._blocks = seconds > 0
        self._until = time.monotonic() + (seconds or LONGEST)

    def put(self, work: Callable[..., _T], *given: Any, disk: bool, **more: Any) -> _T:
        """What ``work`` returns; it takes ``block`` and ``timeout`` besides what is given.

        It is called again while a wait for room lasts, but once if it waits for the ``disk``.
        Raises what ``work`` raises.
        """
        while True:
            left = max(self._until - time.monotonic(), 0.0)
            last = disk or not self._blocks or left <= SLICE or self._ending.is_set()
            try:
                block, timeout = self._blocks and left > 0, left if last else SLICE
                return work(*given, block=block, timeout=timeout, **more)
            except shmq.Full:
                if last:
                    raise
