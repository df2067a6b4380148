# Constants, the policy, and errors that several files raise.

cdef enum:
    WAIT_SLICE = 50000000        # ns
    WRITER_SLICE = 250000000     # ns: how soon a wait for the disk notices that the writer is gone
    NOGIL_BYTES = 1 << 16        # copies from this size on let other threads run
    MOST_SPIN = 100000           # ns
    LEAST_SPIN = 2000
    ROOM_SPINS = 40              # tries of an append to a full ring before it sleeps
    ROOM_SPIN = 1000             # ns between them
    STICKY_BYTES = 1 << 16       # bytes of records without a key before the partition changes
    OVERTAKEN = 1000             # reads in a row that may be overtaken before an error is raised

cdef uint64_t NOWHERE = 0xFFFFFFFFFFFFFFFF
cdef uint64_t SMALL = 0xFFFFFFEF       # the most bytes of one part of a record
cdef int64_t FOREVER = 0x7FFFFFFFFFFFFFFF
cdef int64_t AT_ONCE = 0               # the deadline of an operation that waits only for a lock
cdef tuple _CODECS = tuple([shmq_codec_name(<uint8_t>number).decode()
                            for number in range(<int>SHMQ_CODECS)])
#: The size in bytes of an entry without its value, key and headers; the flag for "has a key".
ENTRY_HEAD = <int>SHMQ_ENTRY_HEAD
ENTRY_KEYED = <int>SHMQ_E_KEYED
COMPRESSIONS = (None, "lz4", "zstd")
cdef dict _MAGIC = {"lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}  # of a frame

#: Every timestamp is before this, in seconds since 1970.
END_OF_TIME = 1 << 33
_BILLION = 10 ** 9
cdef int64_t END_NS = END_OF_TIME * _BILLION

cdef object _encode = None
cdef object _decode = None
cdef object _pack = None
cdef object _unpack = None
cdef object _expand_batch = None


def set_patience(double seconds):
    """Limit how long this thread waits for a lock, in seconds; 0 restores the default."""
    shmq_limit_patience(<int64_t>(seconds * 1e9))


def set_policy(policy: _core.Policy):
    """Set the callbacks that the streams and records of this module use: a `Policy`."""
    global _encode, _decode, _pack, _unpack, _expand_batch
    _encode, _decode = policy.encode_body, policy.decode_body
    _pack, _unpack = policy.pack_properties, policy.unpack_properties
    _expand_batch = policy.expand


cdef inline int64_t _monotonic():
    return shmq_read_clock(CLOCK_MONOTONIC)


cdef int64_t _until(timeout) except? -1:
    """The deadline of a wait of ``timeout`` seconds in monotonic ns; None means no limit."""
    if timeout is None:
        return FOREVER
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(
            f"timeout={timeout!r} must be a number of seconds, not {type(timeout).__name__}")
    if not timeout >= 0:
        raise _errors.InvalidOption(f"timeout={timeout} must be 0 or more seconds")
    return FOREVER if timeout > 1e9 else _monotonic() + <int64_t>(timeout * 1e9)


def check_timeout(timeout: float | None):
    """Raise TypeError or InvalidOption if it is not a timeout; None is one."""
    _until(timeout)


cdef uint64_t _natural(str what, value) except? 0xFFFFFFFFFFFFFFFF:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}={value!r} must be an int, not {type(value).__name__}")
    if not 0 <= value < 1 << 63:
        raise _errors.InvalidOption(f"{what}={value} is out of range: 0 to {(1 << 63) - 1}")
    return value


cdef int64_t _wall_ns(timestamp) except? -1:
    """An append's timestamp in ns since 1970; 0, which means now, for None."""
    if timestamp is None:
        return 0
    if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)):
        raise TypeError(
            f"timestamp={timestamp!r} must be in seconds since 1970, "
            f"not {type(timestamp).__name__}")
    if not 0 < timestamp < END_OF_TIME:
        raise _errors.InvalidOption(
            f"timestamp={timestamp} is out of range: more than 0 and less than {END_OF_TIME} "
            f"seconds since 1970")
    # Rounded to the nearest, so that it is read back as it was given: see _seconds.
    whole = int(timestamp)
    return max(1, whole * _BILLION + round((timestamp - whole) * 1e9))


cdef object _seconds(int64_t ns):
    """ns as seconds, rounded once, like Python's int division: `_wall_ns` restores the same ns."""
    return (<object>ns) / _BILLION


def least_ns(timestamp: float) -> int:
    """The first ns since 1970 that read as ``timestamp`` seconds or more, for `Partition.at`."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)):
        raise TypeError(
            f"timestamp={timestamp!r} must be in seconds since 1970, "
            f"not {type(timestamp).__name__}")
    if not 0 <= timestamp < END_OF_TIME:
        raise _errors.InvalidOption(
            f"timestamp={timestamp} is out of range: 0 to less than {END_OF_TIME} seconds "
            f"since 1970")
    about = int(timestamp * 1e9)
    near = range(max(0, about - 1024), about + 1024)
    return near[_bisect.bisect_left(near, timestamp, key=_seconds_of)]


def _seconds_of(ns):
    return ns / _BILLION


cdef int64_t _checked_ns(int64_t ns) except? -1:
    """Check a timestamp that is in ns already; 0 is now."""
    if not 0 <= ns < END_NS:
        _wall_ns(ns / 1e9)
    return ns


cdef object _deleted_error(str name):
    return _errors.StreamDeleted(f"stream {name!r} was deleted")


cdef object _damaged_error(str name):
    return _errors.DamagedSegment(
        f"a segment of stream {name!r} is damaged: its entries contradict each other; "
        f"delete the stream")
