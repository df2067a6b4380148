"""Reports what a write waits for: in the log, and in a file that a job reads."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from shmq.disk.storage.disk import completed
from shmq.errors import Full
from shmq.native import _clock as time
from shmq.native._core import reserve_standard

log = logging.getLogger("shmq")

#: How long a write waits before it reports why, and how often it repeats that, in seconds.
INTERVAL: Final = 5.0

T = TypeVar("T")


class WaitReport:
    """What one write waits for. ``path`` is the file of the option ``waitFile``, if any."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._due = time.monotonic() + INTERVAL
        self._reported = False

    def waits(self, reasons: Iterable[str]) -> None:
        """Report the reasons, unless the last report is newer than :data:`INTERVAL`."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + INTERVAL
        text = "; ".join(reasons)
        log.warning("the write waits: %s", text)
        self._write(text)
        self._reported = True

    def ends(self) -> None:
        """Report that the write no longer waits."""
        if self._reported:
            self._reported = False
            log.warning("the write no longer waits")
            self._write("")

    def until_room(self, attempt: Callable[[float | None], T], timeout: float | None) -> T:
        """Return ``attempt(seconds)``, repeated while it raises Full and time is left.

        Each wait is at most :data:`INTERVAL` long; after it the reason is reported. Raises the
        last :class:`~shmq.Full`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = INTERVAL if end is None else max(0.0, end - time.monotonic())
            try:
                done = attempt(min(INTERVAL, left))
            except Full as error:
                if end is not None and time.monotonic() >= end:
                    raise
                self.waits([str(error)])
            else:
                self.ends()
                return done

    def _write(self, text: str) -> None:
        """Replace the file at once. A task of another host has no folder for it."""
        if self._path is None:
            return
        reserve_standard()
        with contextlib.suppress(OSError), completed(self._path) as aside:
            aside.write_text(text)
