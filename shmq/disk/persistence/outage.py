"""A disk that refuses what is written of one queue, or of one partition."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

log = logging.getLogger("shmq")

#: After a failure the disk is tried again this often, in seconds.
RETRY: Final = 0.5
_PAUSE: Final = 0.02


class Outage:
    """Logs once that ``what`` cannot be written, and publishes the errno to those who wait."""

    def __init__(self, what: str, directory: Path, publish: Callable[[int], object]) -> None:
        self._what = what
        self._directory = directory
        self._publish = publish
        #: Why the last write failed; None: it succeeded.
        self.error: OSError | None = None

    def report(self, error: OSError) -> None:
        """A write failed with this error."""
        if self.error is None or _describe(self.error) != _describe(error):
            log.error(
                "%s cannot be written to %s: %s; it is tried again every %s s, and nothing is "
                "confirmed until then",
                *(self._what, self._directory, _describe(error), RETRY),
            )
            self._publish(error.errno or errno.EIO)
        self.error = error

    def end(self) -> None:
        """A write succeeded."""
        if self.error is not None:
            log.warning("%s is written to %s again", self._what, self._directory)
            self.error = None
            self._publish(0)


def wait_for_retry(is_over: Callable[[], bool]) -> None:
    """Sleep until the disk is tried again, or ``is_over``."""
    end = time.monotonic() + RETRY
    while not is_over() and time.monotonic() < end:
        time.sleep(_PAUSE)


def _describe(error: OSError) -> str:
    return error.strerror or str(error)
