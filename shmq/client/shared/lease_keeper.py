"""Extends the lease of a message while its handler runs."""

from __future__ import annotations

import logging
import threading
from typing import Self

from shmq.api import Message
from shmq.errors import LeaseExpired, ShmqError

__all__ = ["LeaseKeeper"]

log = logging.getLogger("shmq.workers")

#: How often a lease is extended during its time: two failures in a row do no harm.
BEATS = 3


class LeaseKeeper:
    """A thread that extends the lease of one message at a time, by ``seconds`` each time."""

    def __init__(self, who: str, seconds: float) -> None:
        self._who = who
        self._seconds = seconds
        self._message: Message | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shmq-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def keep(self, message: Message) -> None:
        """From now on, keep the lease of ``message``."""
        self._message = message

    def rest(self) -> None:
        """Keep no lease. An extension that is under way may still happen."""
        self._message = None

    def _run(self) -> None:
        while not self._ended.wait(self._seconds / BEATS):
            message = self._message
            if message is not None:
                self._prolong(message)

    def _prolong(self, message: Message) -> None:
        try:
            message.extend(self._seconds)
        except LeaseExpired as error:
            if self._message is message and not message.settled:
                self._message = None
                log.warning("%s: the lease of the message at hand is lost: %s", self._who, error)
        except ShmqError as error:
            log.warning("%s: the lease of the message at hand is not kept: %s", self._who, error)
