"""Ties a process to the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

__all__ = ["tether"]

_PR_SET_PDEATHSIG: Final = 1


def tether(parent: int, number: int = signal.SIGKILL) -> None:
    """From now on the kernel sends this process a signal when ``parent`` is gone.

    prctl(2), PR_SET_PDEATHSIG: it acts on a parent that was killed, and on a child that
    does not come to run any Python. It means the thread of the parent that started this
    process, so that must live as long. A parent that was gone before has it sent here.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_PDEATHSIG): {os.strerror(code)}")
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
