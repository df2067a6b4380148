"""Locks of whole files with flock(2), which the kernel releases when their holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from shmq.native import _clock as time
from shmq.native.descriptors import open_file

#: How long a lock is tried for, in seconds: `is_locked` holds it for an instant.
_LOCK_TIMEOUT: Final = 0.5
_POLL_INTERVAL: Final = 0.01
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW


def lock_file(path: Path) -> int:
    """Open the file, create it if needed, and lock it until the descriptor is closed.

    Its holder may remove the file. Raises BlockingIOError if another open file has the lock, and
    OSError.
    """
    end = time.monotonic() + _LOCK_TIMEOUT
    while True:
        with contextlib.ExitStack() as closing:
            file = open_file(path, os.O_RDWR | os.O_CREAT | _FLAGS)
            closing.callback(os.close, file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file), path.stat()):
                    closing.pop_all()
                    return file
                continue
            except FileNotFoundError:  # its last holder removed it
                continue
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
        time.sleep(_POLL_INTERVAL)


def is_locked(path: Path) -> bool:
    """Whether an open file has the lock; false if the file cannot be opened."""
    try:
        file = open_file(path, os.O_RDONLY | _FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)  # a child that was just forked has the same open file
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
