# What every module has that binds shared memory: its copy of the core waits and counts by itself.

HAS_CRASHPOINTS = bool(SHMQ_HAS_CRASHPOINTS)


def set_patience(double seconds):
    """Limit how long this thread waits for a lock, in seconds; 0 restores the default."""
    shmq_limit_patience(<int64_t>(seconds * 1e9))


cdef int _copy_name(char *to, str name) except -1:
    cdef bytes raw = name.encode("ascii")
    memset(to, 0, SHMQ_NAME_BYTES)
    memcpy(to, PyBytes_AS_STRING(raw), min(len(raw), SHMQ_NAME_BYTES - 1))
    return 0


# ---- functions for tests only ----


def set_clock(ns: int | None):
    """Fix this module's monotonic clock in this process; None restores the real one."""
    global shmq_clock_set
    shmq_clock_set = 0 if ns is None else ns


def clock() -> int:
    """This module's monotonic time, in ns."""
    return shmq_now()


def crash_at(uint64_t store):
    """Die by SIGKILL right after this module's ``store``-th shared store from now; 0: never."""
    global shmq_crash_at
    shmq_crash_at = shmq_stores + store if store else 0


def marks() -> int:
    """How many shared stores this process has made through this module."""
    return shmq_stores
