"""A call as its caller sees it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmq.futures.pool import Pool


class Call(Future[Any]):
    """The future of a call, which waits in shared memory until a worker takes it."""

    def __init__(self, pool: Pool, number: int) -> None:
        super().__init__()
        self.number = number
        #: How many workers have died with it.
        self.deaths = 0
        self._pool: Pool | None = pool
        self.add_done_callback(_release_pool)

    def cancel(self) -> bool:
        """Cancel the call, unless a worker has taken it; return whether it is cancelled."""
        pool = self._pool
        if pool is not None and not self.done() and pool.withdraw(self.number):
            self.withdrawn()
        return self.cancelled()

    def withdrawn(self) -> None:
        """Note that the call was removed from the queue."""
        super().cancel()
        self.set_running_or_notify_cancel()

    def running(self) -> bool:
        """Whether a worker is executing the call."""
        pool = self._pool
        return pool is not None and not self.done() and pool.crew.activities.has_call(self.number)


def _release_pool(call: Any) -> None:
    call._pool = None
