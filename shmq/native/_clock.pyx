# cython: language_level=3
"""The kernel's clocks under the names of Python's ``time``, which tests may have frozen.

Libraries such as freezegun and time-machine replace Python's clocks. A deadline that is computed
and checked by those never passes, and other processes share no frozen clock.
"""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, clockid_t, timespec

from time import sleep as _sleep


cdef int64_t _read(clockid_t clock) noexcept:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


def monotonic() -> float:
    """Return the seconds of a clock that never goes back, the one of ``time.monotonic``."""
    return _read(CLOCK_MONOTONIC) / 1e9


def monotonic_ns() -> int:
    """Return the nanoseconds of the clock of `monotonic`."""
    return _read(CLOCK_MONOTONIC)


def time() -> float:
    """Return the seconds since 1970."""
    return _read(CLOCK_REALTIME) / 1e9


def time_ns() -> int:
    """Return the nanoseconds since 1970."""
    return _read(CLOCK_REALTIME)


def sleep(double seconds) -> None:
    """Sleep, as ``time.sleep`` does."""
    _sleep(seconds)
