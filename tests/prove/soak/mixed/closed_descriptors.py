"""A program without standard descriptors, in which C libraries print nevertheless."""

from __future__ import annotations

import contextlib
import os
import threading

from shmq.native import _clock as time

NOISE = b"a C library that prints to a closed descriptor\n" * 8
PAUSE = 0.005


def close_descriptors() -> None:
    """Close 0, 1 and 2, and write to 1 and 2 for as long as the process lives."""
    for standard in range(3):
        with contextlib.suppress(OSError):
            os.close(standard)
    threading.Thread(target=_print, name="noise", daemon=True).start()


def _print() -> None:
    while True:
        for standard in (1, 2):
            with contextlib.suppress(OSError):
                os.write(standard, NOISE)
        time.sleep(PAUSE)
