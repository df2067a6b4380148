"""The handler of processes that log: it puts each record into a queue."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final

import shmq
from shmq.extras.frameworks.task_queues import LEASE, Connection, TaskQueues
from shmq.extras.logs.record import encode_record

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

#: The name of the loggers whose records are about log records.
NAME: Final = "shmq.logs"

#: The options of a queue of log records, under those that the application gives.
_DEFAULTS: Final[dict[str, Any]] = {
    "arena_bytes": 256 << 20,
    "priorities": 1,
    "visibility_timeout": LEASE,
    # A record that a listener could not write is not lost with its third listener.
    "max_deliveries": None,
    "overflow": "reject",
}


def open_queues(
    url: str | None, token: str | None, tls: Tls, options: dict[str, Any]
) -> TaskQueues:
    """The queues of log records, created with these options."""
    return TaskQueues(Connection(url, token, tls), "", _DEFAULTS | options)


class QueueHandler(logging.Handler):
    """Puts log records into the queue ``queue``, for a `Listener`.

    A record is in shared memory when the logging call returns, so it survives the process. ``url``,
    ``token`` and ``tls`` are as for :func:`shmq.connect`; ``options`` are those of
    :class:`shmq.QueueOptions`, with which the queue is created at the first record.

    A full queue makes the call wait up to ``wait`` seconds; then the record is dropped, and the
    next one that finds room is preceded by a warning with the number of dropped ones. Any other
    failure is passed to ``handleError``: logging never raises. Records that shmq itself logs during
    a put, or the warnings that it issues, go to ``logging.lastResort``.
    """

    def __init__(
        self,
        queue: str = "logs",
        url: str | None = None,
        *,
        token: str | None = None,
        tls: Tls = None,
        wait: float = 0.0,
        level: int | str = logging.NOTSET,
        **options: Any,
    ) -> None:
        super().__init__(level)
        if wait < 0:
            raise shmq.InvalidOption(f"wait={wait!r} must be 0 or more seconds")
        self._queue = queue
        self._wait = wait
        self._queues = open_queues(url, token, tls, options)
        #: Whether this thread puts a record: not that of a thread which a fork has left behind.
        self._putting = threading.local()
        #: How many records were dropped, by process: a forked child has a copy of its parent's.
        self._dropped: dict[int, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Put the record. Called with the handler's lock, which this thread may hold already."""
        if getattr(self._putting, "now", False):
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
            return
        self._putting.now = True
        try:
            self._put(record)
        except Exception:  # noqa: BLE001 - whatever it is, the application goes on
            self.handleError(record)
        finally:
            self._putting.now = False

    def _put(self, record: logging.LogRecord) -> None:
        fields = encode_record(record, self.formatter)
        try:
            if self._dropped:
                self._report_dropped()
            self._queues.put(self._queue, fields, self._wait or None)
        except (shmq.Full, shmq.NoSpace):
            self._dropped[os.getpid()] = self._dropped.get(os.getpid(), 0) + 1

    def _report_dropped(self) -> None:
        count = self._dropped.get(os.getpid())
        if count:
            text = f"{count} log records of process {os.getpid()} were dropped: the queue was full"
            notice = logging.LogRecord(NAME, logging.WARNING, "", 0, text, None, None)
            self._queues.put(self._queue, encode_record(notice, self.formatter), self._wait or None)
            del self._dropped[os.getpid()]

    def close(self) -> None:
        """Close the connection; a record that is logged later opens it again."""
        self._queues.close()
        super().close()
