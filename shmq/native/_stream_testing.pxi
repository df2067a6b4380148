# Functions for tests only.

HAS_CRASHPOINTS = bool(SHMQ_HAS_CRASHPOINTS)


def crash_at(uint64_t store):
    """Die by SIGKILL right after the ``store``-th shared store of `_log` from now; 0: never."""
    global SHMQ_CRASH_AT
    SHMQ_CRASH_AT = SHMQ_MARKS + store if store else 0


def marks() -> int:
    """How many shared stores this process has made through `_log`."""
    return SHMQ_MARKS
