# Functions for tests only.


def set_clock(ns: int | None):
    """Fix the monotonic clock of this process's queue operations; None restores the real one."""
    global shmq_clock_set
    shmq_clock_set = 0 if ns is None else ns


def clock() -> int:
    """The monotonic time of this process's queue operations, in ns."""
    return shmq_now()


def mark():
    """Count a store made outside the core, in a build with crash points."""
    shmq_mark()


HAS_CRASHPOINTS = bool(SHMQ_HAS_CRASHPOINTS)


def crash_at(uint64_t store):
    """Die by SIGKILL right after the ``store``-th shared store from now; 0 means never."""
    global SHMQ_CRASH_AT
    SHMQ_CRASH_AT = SHMQ_MARKS + store if store else 0


def marks() -> int:
    """How many shared stores this process has made."""
    return SHMQ_MARKS
