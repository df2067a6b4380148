"""The listener: takes log records from the queue and calls handlers with them."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import shmq
from shmq.extras.logs.handler import NAME, open_queues
from shmq.extras.logs.record import decode_record

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

#: How many records are leased by one call.
_BATCH: Final = 64
#: How long a call waits for records, in seconds: a `stop` is noticed after it.
_SLICE: Final = 0.5


class Listener:
    """Calls ``handlers`` with the records of the queue, each handler with those of its level.

    A record is acknowledged after the handlers have returned, so a listener that is killed loses
    none; the record that it was handling is handled again by the next one. Run one listener for a
    file: several of them share the records. The other arguments are as for `QueueHandler`.

    ``start`` runs it in a thread, until ``stop``; ``run`` runs it in the calling thread, for a
    process of its own. As a context manager it is started and stopped.
    """

    def __init__(
        self,
        queue: str,
        *handlers: logging.Handler,
        url: str | None = None,
        token: str | None = None,
        tls: Tls = None,
        **options: Any,
    ) -> None:
        self.handlers = handlers
        self._queue = queue
        self._queues = open_queues(url, token, tls, options)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        #: The error of the last call, which is reported once; empty without one.
        self._error = ""

    def start(self) -> None:
        """Run in a thread. Raises RuntimeError if it has started already."""
        if self._thread is not None:
            raise RuntimeError("the listener has started already: stop it first")
        self._stopping.clear()
        self._error = ""
        self._thread = threading.Thread(target=self._loop, name="shmq-logs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let it handle what is in the queue now, and end; wait for its thread.

        May be called from a handler of a signal, and by any thread.
        """
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def run(self) -> None:
        """Handle records until ``stop`` is called, or was."""
        self._loop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _loop(self) -> None:
        try:
            while not self._stopping.is_set():
                self._handle_next(_SLICE)
            left = self._count()
            while left > 0 and (handled := self._handle_next(0)):
                left -= handled
        finally:
            self._queues.close()

    def _count(self) -> int:
        try:
            return self._queues.queue(self._queue).qsize()
        except shmq.ShmqError:  # the queue was deleted, or its server has ended
            return 0

    def _handle_next(self, timeout: float) -> int:
        """Handle up to a batch of records; return how many."""
        queue = None
        try:
            queue = self._queues.queue(self._queue)
            messages = queue.get_many(_BATCH, timeout, block=timeout > 0)
            for message in messages:
                self._handle(message)
            self._error = ""
            return len(messages)
        except shmq.ShmqError as error:
            if str(error) != self._error:
                self._error = str(error)
                self._report(f"The queue {self._queue!r} of log records failed: {error}")
            if queue is not None:
                self._queues.forget(self._queue, queue)
                queue.close()  # no other thread uses it; what it holds leased returns
            self._stopping.wait(_SLICE)
            return 0

    def _handle(self, message: shmq.Message) -> None:
        try:
            record = decode_record(message.body)
        except (TypeError, shmq.ShmqError) as error:
            self._report(f"Message {message.sequence} is not a log record: {error}")
            message.reject(error)
            return
        self._call_handlers(record)
        message.ack()

    def _report(self, text: str) -> None:
        self._call_handlers(logging.LogRecord(NAME, logging.WARNING, "", 0, text, None, None))

    def _call_handlers(self, record: logging.LogRecord) -> None:
        for handler in self.handlers:
            if record.levelno >= handler.level:
                try:
                    handler.handle(record)
                except Exception:  # noqa: BLE001 - of any handler; the others get the record
                    handler.handleError(record)
