"""Standard output as a place that says how much of what was written is out of our hands.

A file or a terminal has taken what was written. A pipe has not: what its reader
leaves unread when it closes is gone. So a pipe counts what was read from it.
"""

from __future__ import annotations

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

import click

__all__ = ["Outlet", "Pipe", "open_outlet"]

#: How long one wait for a reader lasts before its caller may look around, in seconds.
SLICE = 0.02

#: What a pipe takes without blocking once it says that it takes anything.
_ATOMIC = select.PIPE_BUF


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
        """Write all of ``data``; call ``idle`` now and then while nobody takes it.

        Raises OSError, BrokenPipeError among them, with :attr:`written` true.
        """
        rest = memoryview(data)
        while rest:
            if not self._ready(SLICE):
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
        """Wait a little for the reader: until it took all, or closed, or a slice is over."""

    def abandoned(self) -> bool:
        """Whether nobody will ever read what is written from now on."""
        return bool(self._poll.poll(0))

    def _ready(self, seconds: float) -> bool:
        writable = select.poll()
        writable.register(self._descriptor, select.POLLOUT)
        return bool(writable.poll(seconds * 1000))


class Pipe(Outlet):
    """A pipe, whose reader takes what it wants."""

    batch = 1

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._chunk = _ATOMIC

    def taken(self) -> int:
        """How many of the bytes written were read."""
        return self.written - self._unread()

    def wait(self) -> None:
        """Wait as described there: at first by yielding, as a reader may be quick."""
        ends = time.monotonic() + SLICE
        pause = 0.0
        while self._unread() and time.monotonic() < ends:
            if pause < 0.001:
                os.sched_yield()
                pause += 0.00002
            elif self._poll.poll(pause * 1000):
                return
            else:
                pause *= 2

    def _unread(self) -> int:
        counted = fcntl.ioctl(self._descriptor, termios.FIONREAD, struct.pack("i", 0))
        return int(struct.unpack("i", counted)[0])


def open_outlet() -> Outlet:
    """Standard output. Raises :class:`click.ClickException` if it is closed."""
    if sys.stdout is None:
        raise click.ClickException("standard output is closed, so nothing was consumed: open it")
    sys.stdout.flush()
    descriptor = sys.stdout.fileno()
    mode = os.fstat(descriptor).st_mode
    return Pipe(descriptor) if stat.S_ISFIFO(mode) else Outlet(descriptor)
