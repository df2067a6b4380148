# What only tests use.

cdef extern from *:
    """
    #ifdef SHMQ_CRASHPOINTS
    #define SHMQ_HAS_CRASHPOINTS 1
    #define SHMQ_MARKS shmq_marks
    #define SHMQ_CRASH_AT shmq_crash_at
    #else
    #define SHMQ_HAS_CRASHPOINTS 0
    static uint64_t SHMQ_MARKS, SHMQ_CRASH_AT;
    #endif
    """
    enum: SHMQ_HAS_CRASHPOINTS
    uint64_t SHMQ_MARKS, SHMQ_CRASH_AT

HAS_CRASHPOINTS = bool(SHMQ_HAS_CRASHPOINTS)


def crash_at(uint64_t store):
    """Die by SIGKILL right after the ``store``-th shared store of `_log` from now; 0: never."""
    global SHMQ_CRASH_AT
    SHMQ_CRASH_AT = SHMQ_MARKS + store if store else 0


def marks():
    """How many shared stores this process has made through `_log`."""
    return SHMQ_MARKS
