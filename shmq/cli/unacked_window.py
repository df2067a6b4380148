"""The messages that are written and not yet acknowledged, and the output they go to."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import select
import stat
import struct
import sys
import termios
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import click

import shmq
from shmq.cli.shared.output import check_stdout

#: How many bytes are gathered at most before they are written.
GATHERED = 1 << 20
#: How long to wait for the reader before the next message is written, in seconds.
PATIENCE = 0.5
#: How long the end of a run waits for the reader of the last messages, in seconds.
LINGER = 1.0

#: How long one wait for the reader lasts before signals are checked, in seconds.
SLICE = 0.02
#: A pipe that is ready for writing takes so many bytes without blocking.
_ATOMIC = select.PIPE_BUF


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
        #: Messages written.
        self.count = 0
        #: Messages written after their lease had expired: they will be delivered again.
        self.late = 0

    def write(self, messages: list[shmq.Message], render: Callable[[shmq.Message], bytes]) -> None:
        """Write the ``messages``, and settle what was taken.

        One whose lease has run out before is left to its next holder. Raises
        :class:`click.ClickException` if writing fails, BrokenPipeError if the reader left.
        """
        if not self._unsettled:
            self._progress = time.monotonic()
        buffer = bytearray()
        for message in messages:
            try:
                buffer += render(message)
            except shmq.LeaseExpired:
                continue
            self.count += 1
            self._unsettled.append((self._outlet.written + len(buffer), message))
            if len(buffer) >= GATHERED:
                self._flush(buffer)
        self._flush(buffer)

    def _flush(self, buffer: bytearray) -> None:
        try:
            self._outlet.write(bytes(buffer), self._wait_briefly)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise click.ClickException(
                f"cannot write to standard output: {error.strerror}; "
                f"what it did not take is back in the queue"
            ) from error
        buffer.clear()
        self.settle()
        self._wait_for_reader()

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

    def abandon(self) -> None:
        """Forget the messages not acknowledged yet: their leases ended with their connection."""
        self._unsettled.clear()

    def _wait_for_reader(self) -> None:
        """Wait until the reader has read all, or may get one more message."""
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
        """Extend the leases that would expire while the reader is slow."""
        now = time.monotonic()
        if not self._unsettled:
            self._extended = now
        elif now - self._extended > self._lease / 3:
            self._extended = now
            for _, message in self._unsettled:
                with contextlib.suppress(shmq.LeaseExpired):
                    message.extend(self._lease)

    def _wait_briefly(self) -> None:
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


class Outlet:
    """A descriptor to write to: a file, a terminal, a socket."""

    #: How many messages are written at a time.
    batch = 64

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._chunk = 1 << 20
        self._poll = select.poll()
        self._poll.register(descriptor, 0)
        #: The bytes written so far.
        self.written = 0

    def write(self, data: bytes, idle: Callable[[], None]) -> None:
        """Write all of ``data``; call ``idle`` about every :data:`SLICE` while it blocks.

        Raises OSError, BrokenPipeError among them, with :attr:`written` true.
        """
        rest = memoryview(data)
        while rest:
            if not self._is_writable(SLICE):
                idle()
                continue
            with contextlib.suppress(BlockingIOError):
                taken = os.write(self._descriptor, rest[: self._chunk])
                self.written += taken
                rest = rest[taken:]

    def taken(self) -> int:
        """How many of the bytes written can no longer be lost with the reader."""
        return self.written

    def wait(self) -> None:
        """Wait until the reader has read all or closed, at most :data:`SLICE`."""

    def abandoned(self) -> bool:
        """Whether the reader is gone for good."""
        return bool(self._poll.poll(0))

    def _is_writable(self, seconds: float) -> bool:
        writable = select.poll()
        writable.register(self._descriptor, select.POLLOUT)
        return bool(writable.poll(seconds * 1000))


class Pipe(Outlet):
    """A pipe: its reader may close it before it has read everything."""

    batch = 1

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._chunk = _ATOMIC

    def taken(self) -> int:
        """How many of the bytes written were read."""
        return self.written - self._count_unread()

    def wait(self) -> None:
        """Wait as the base class says; yield first, because a reader may be quick."""
        ends = time.monotonic() + SLICE
        pause = 0.0
        while self._count_unread() and time.monotonic() < ends:
            if pause < 0.001:
                os.sched_yield()
                pause += 0.00002
            elif self._poll.poll(pause * 1000):
                return
            else:
                pause *= 2

    def _count_unread(self) -> int:
        counted = fcntl.ioctl(self._descriptor, termios.FIONREAD, struct.pack("i", 0))
        return int(struct.unpack("i", counted)[0])


def open_outlet() -> Outlet:
    """Standard output. Raises :class:`click.ClickException` if it is closed."""
    check_stdout("consumed")
    sys.stdout.flush()
    descriptor = sys.stdout.fileno()
    mode = os.fstat(descriptor).st_mode
    return Pipe(descriptor) if stat.S_ISFIFO(mode) else Outlet(descriptor)
