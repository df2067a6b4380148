"""Finds the queues, or the streams, in memory that the writer does not write yet."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterable

from shmq.disk.persistence.outage import RETRY
from shmq.errors import NoSuchQueue, NoSuchStream, QueueDeleted, ShmqError, StreamDeleted

log = logging.getLogger("shmq")


class DirectoryError(Exception):
    """Wraps the error for which a directory cannot be used: it ends the writer."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Discovery:
    """The segments of one ``kind``, queue or stream, each checked once. For one thread."""

    def __init__(
        self, kind: str, names: Callable[[], Iterable[str]], path_of: Callable[[str], str]
    ) -> None:
        self._kind = kind
        self._names = names
        self._path_of = path_of
        #: Segments that are written or need no writer, by name and inode.
        self._checked: set[tuple[str, int]] = set()
        #: When those that could not be written are tried again, on the monotonic clock.
        self._retry_at: dict[tuple[str, int], float] = {}

    @property
    def retry_at(self) -> float:
        """When the next one that could not be written is tried again; infinity: there is none."""
        return min(self._retry_at.values(), default=math.inf)

    def find_untried(self) -> list[str]:
        """The names of the segments that `attach_new` has not tried."""
        return [one[0] for one in self._find_new() if one not in self._retry_at]

    def attach_new(self, attach: Callable[[str], None]) -> None:
        """Call ``attach`` with the name of each new segment, until that succeeds.

        An error is logged, once, and it is called again later; not if the segment has gone. Raises
        the error in a `DirectoryError`.
        """
        for one in self._find_new():
            if time.monotonic() < self._retry_at.get(one, 0.0):
                continue
            try:
                attach(one[0])
            except (NoSuchQueue, QueueDeleted, NoSuchStream, StreamDeleted):
                continue
            except DirectoryError as error:
                raise error.error from None
            except (ShmqError, OSError) as error:
                if one not in self._retry_at:
                    log.warning("%s %s is not kept on disk: %s", self._kind, one[0], error)
                self._retry_at[one] = time.monotonic() + RETRY
            else:
                self._checked.add(one)
                self._retry_at.pop(one, None)

    def _find_new(self) -> list[tuple[str, int]]:
        there = set()
        for name in self._names():
            with contextlib.suppress(OSError):
                there.add((name, os.stat(self._path_of(name)).st_ino))
        self._checked &= there
        self._retry_at = {one: at for one, at in self._retry_at.items() if one in there}
        return sorted(there - self._checked)
