"""Detaches a process: it continues in the background, in its own session."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from shmq.errors import ShmqError

__all__ = ["Parent", "detach"]

#: A log that is longer than this, in bytes, is rotated at the next start.
_LONG: Final = 1 << 20
_MOST: Final = 1 << 16


class Parent:
    """The parent process, which waits until this one has started."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def tell(self, problem: str = "") -> None:
        """Let the parent end; with a ``problem``, as an error. Does it once."""
        if self._pipe >= 0:
            pipe, self._pipe = self._pipe, -1
            try:
                os.write(pipe, (problem or "\0").encode()[:_MOST])
            except BrokenPipeError:
                pass  # the parent has already ended
            finally:
                os.close(pipe)


def detach(log: Path) -> Parent:
    """Continue in a forked child, with ``log`` as stderr; the parent ends when the child says so.

    For a process with one thread and without locks. The child has its own session and no
    terminal, and the parent does not wait for its end. In the parent this raises SystemExit, or
    :class:`~shmq.ShmqError` with the problem. Raises OSError.
    """
    file = _opened(log)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(writing)
        os.close(file)
        _await(reading, log)
    os.close(reading)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard, source in ((0, nothing), (1, nothing), (2, file)):
        os.dup2(source, standard)
    os.close(nothing)
    os.close(file)
    os.chdir("/")
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    return Parent(writing)


def _opened(log: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(log, flags, 0o600)
    if os.fstat(file).st_size > _LONG:
        os.close(file)
        log.rename(f"{log}.old")
        file = os.open(log, flags, 0o600)
    return file


def _await(pipe: int, log: Path) -> None:
    """In the parent: wait for the child, then raise SystemExit or ShmqError."""
    said = b""
    while more := os.read(pipe, _MOST):
        said += more
    if said == b"\0":
        raise SystemExit(0)
    raise ShmqError(said.decode("utf-8", "replace") or f"it has ended: {log} says more")
