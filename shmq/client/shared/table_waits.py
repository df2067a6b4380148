"""The thread that waits for the keys of a table on behalf of a process's event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Final

from shmq.client.shared import loop_timer
from shmq.fork_safe import new_lock
from shmq.model.table.entry import Stored

#: The first pause between two lookups, in seconds; doubled each time.
FIRST_PAUSE: Final = 0.001
#: How long the thread stays after the last waiter has left, in seconds.
_LINGER: Final = 1.0


class _Waiter:
    """A task that waits until its key has a value."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Stored] = self.loop.create_future()

    def resolve(self, outcome: Stored | Exception) -> None:
        """End the wait, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self._set, outcome)

    def _set(self, outcome: Stored | Exception) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class TableWaits:
    """Looks the keys up that tasks of this process wait for, all of them in one thread.

    ``find`` returns those of some keys that have a value, and ``changed`` what differs after a
    write. The thread runs as long as a task waits. After a fork the child cannot use it.
    """

    def __init__(
        self,
        find: Callable[[list[str]], dict[str, Stored]],
        changed: Callable[[], object],
        longest_pause: float,
    ) -> None:
        self._find = find
        self._changed = changed
        self._longest_pause = longest_pause
        self._process = os.getpid()
        self._condition = threading.Condition(new_lock())
        self._waiters: set[_Waiter] = set()
        self._has_new = False
        self._thread: threading.Thread | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it was made in this process."""
        return self._process == os.getpid()

    async def wait(self, key: str, timeout: float | None) -> Stored | None:
        """Return the value of the key once it is set; None after ``timeout`` seconds without it.

        Raises what ``find`` raises.
        """
        waiter = _Waiter(key)
        self._join(waiter)
        try:
            await loop_timer.wait(waiter.future, timeout)
            return waiter.future.result() if waiter.future.done() else None
        finally:
            with self._condition:
                self._waiters.discard(waiter)
            waiter.future.cancel()

    def _join(self, waiter: _Waiter) -> None:
        with self._condition:
            self._waiters.add(waiter)
            self._has_new = True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="shmq table waits", daemon=True
                )
                self._thread.start()
            self._condition.notify()

    # ---- the thread ----

    def _run(self) -> None:
        seen: object = None
        pause = FIRST_PAUSE
        while (waiters := self._get_waiters()) is not None:
            waiting, has_new = waiters
            if has_new:
                seen, pause = None, FIRST_PAUSE
            seen = self._look_up(waiting, seen)
            self._sleep(pause)
            pause = min(2 * pause, self._longest_pause)

    def _get_waiters(self) -> tuple[list[_Waiter], bool] | None:
        """Return the waiters and whether some are new; None if the thread is to end."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._waiters, _LINGER):
                self._thread = None
                return None
            has_new, self._has_new = self._has_new, False
            return list(self._waiters), has_new

    def _look_up(self, waiting: list[_Waiter], seen: object) -> object:
        """Resolve the waiters whose keys are set; returns the state of the table before that."""
        try:
            changed = self._changed()
            if changed == seen:
                return seen
            found = self._find(list({waiter.key for waiter in waiting}))
        except Exception as error:  # noqa: BLE001 - each waiter raises it
            for waiter in waiting:
                self._resolve(waiter, error)
            return None
        for waiter in waiting:
            if waiter.key in found:
                self._resolve(waiter, found[waiter.key])
        return changed

    def _resolve(self, waiter: _Waiter, outcome: Stored | Exception) -> None:
        with self._condition:
            self._waiters.discard(waiter)
        waiter.resolve(outcome)

    def _sleep(self, pause: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._has_new, pause)
