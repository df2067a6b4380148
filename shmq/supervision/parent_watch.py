"""Ends a process together with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

__all__ = ["tether"]

_PR_SET_PDEATHSIG: Final = 1


def tether(parent: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when ``parent`` ends.

    prctl(2), PR_SET_PDEATHSIG: this also works if the parent was killed, and if the child never
    gets to run Python. It refers to the thread of the parent that started this process, so that
    thread must live as long. If the parent has already ended, the signal is sent here.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_PDEATHSIG): {os.strerror(code)}")
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
