"""The messages that are written out and not yet settled."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import click

import shmq
from shmq.cli.shared.output_pipe import Outlet

__all__ = ["Window"]

#: How many bytes are gathered at most before they are written.
GATHERED = 1 << 20

#: How long a reader is waited for before the next message is written, in seconds.
PATIENCE = 0.5

#: How long the end of a run waits for the reader of the last messages, in seconds.
LINGER = 1.0


class Window:
    """Writes messages and acknowledges those that the outlet has taken, in order.

    A reader such as ``head -1`` reads all there is and uses one line of it. So a pipe
    gets the next message when the last one was read. If the reader takes nothing for
    :data:`PATIENCE`, messages are written ahead until ``ahead`` lie unread, and they
    stay unacknowledged, their leases extended, until they are read.

    Leaving it by an exception, or after the reader closed, returns what was not
    taken; leaving it otherwise acknowledges all that was written.
    """

    def __init__(
        self, queue: shmq.Queue, outlet: Outlet, stopped: Callable[[], bool], ahead: int
    ) -> None:
        self._queue = queue
        self._outlet = outlet
        self._stopped = stopped
        self._ahead = ahead
        self._lease = queue.options.visibility_timeout
        self._extended = time.monotonic()
        self._progress = self._extended
        self._unsettled: collections.deque[tuple[int, shmq.Message]] = collections.deque()
        #: How many were written, but their lease had run out: they will come again.
        self.late = 0

    def write(self, messages: list[shmq.Message], render: Callable[[shmq.Message], bytes]) -> int:
        """Write the ``messages``, settle what was taken, and return how many were written.

        One whose lease has run out before is left to its next holder. Raises
        :class:`click.ClickException` if writing fails, BrokenPipeError if the reader left.
        """
        if not self._unsettled:
            self._progress = time.monotonic()
        buffer, count = bytearray(), 0
        for message in messages:
            try:
                buffer += render(message)
            except shmq.LeaseExpired:
                continue
            count += 1
            self._unsettled.append((self._outlet.written + len(buffer), message))
            if len(buffer) >= GATHERED:
                self._flush(buffer)
        self._flush(buffer)
        return count

    def _flush(self, buffer: bytearray) -> None:
        try:
            self._outlet.write(bytes(buffer), self._idle)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise click.ClickException(
                f"cannot write to standard output: {error.strerror}; "
                f"what it did not take is back in the queue"
            ) from error
        buffer.clear()
        self.settle()
        self._await_reader()

    def settle(self) -> None:
        """Acknowledge the messages that were taken, and hold the rest."""
        taken = self._outlet.taken()
        done = []
        while self._unsettled and self._unsettled[0][0] <= taken:
            done.append(self._unsettled.popleft()[1])
        if done:
            self._progress = time.monotonic()
            self._ack(done)
        self._hold()

    def _await_reader(self) -> None:
        """Wait until the reader has taken all, or may be given one more message."""
        while self._unsettled:
            patient = time.monotonic() - self._progress < PATIENCE
            if not patient and len(self._unsettled) < self._ahead:
                return
            if self._outlet.abandoned() or self._stopped():
                return
            self._outlet.wait()
            self.settle()

    def _ack(self, messages: list[shmq.Message]) -> None:
        self.late += len(self._queue.ack_many(messages))

    def _hold(self) -> None:
        """Extend the leases that would end while the reader takes its time."""
        now = time.monotonic()
        if not self._unsettled:
            self._extended = now
        elif now - self._extended > self._lease / 3:
            self._extended = now
            for _, message in self._unsettled:
                with contextlib.suppress(shmq.LeaseExpired):
                    message.extend(self._lease)

    def _idle(self) -> None:
        if self._stopped():
            raise KeyboardInterrupt
        self.settle()

    def _linger(self) -> None:
        ends = time.monotonic() + LINGER
        while self._unsettled and time.monotonic() < ends:
            if self._outlet.abandoned():
                return
            self._outlet.wait()
            self.settle()

    def _give_back(self) -> None:
        for _, message in self._unsettled:
            with contextlib.suppress(shmq.ShmqError):
                message.nack(delay=0)
        self._unsettled.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._linger()
            self.settle()
            if kind is None and not self._outlet.abandoned():
                self._ack([message for _, message in self._unsettled])
                self._unsettled.clear()
        finally:
            self._give_back()
