"""A call as its caller sees it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Call(Future[Any]):
    """The future of a call, which waits in shared memory until a worker takes it.

    ``withdraw`` removes a call of that number from the queue, and returns whether it was there;
    ``is_running`` returns whether a worker is executing it.
    """

    def __init__(
        self, number: int, withdraw: Callable[[int], bool], is_running: Callable[[int], bool]
    ) -> None:
        super().__init__()
        self.number = number
        #: How many workers have died with it.
        self.deaths = 0
        #: The sequence numbers of its messages that workers have returned.
        self.returned: set[str] = set()
        self._withdraw: Callable[[int], bool] = withdraw
        self._is_running: Callable[[int], bool] = is_running
        self.add_done_callback(_release_pool)

    def cancel(self) -> bool:
        """Cancel the call, unless a worker has taken it; return whether it is cancelled."""
        if not self.done() and self._withdraw(self.number):
            self.note_withdrawal()
        return self.cancelled()

    def note_withdrawal(self) -> None:
        """Become cancelled: the call was removed from the queue."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def running(self) -> bool:
        """Whether a worker is executing the call."""
        return not self.done() and self._is_running(self.number)


def _release_pool(call: Any) -> None:
    """Keep no reference to the pool once the call is done."""
    call._withdraw = call._is_running = _is_over


def _is_over(number: int) -> bool:  # noqa: ARG001 - in place of another callback
    return False
