# Constants, the policy, and checks of arguments that several files use.

cdef enum:
    SMALL = 4096                # bodies up to this are copied with the operation itself
    MOST_QUICK = 1 << 14        # and packed batches up to this
    MOST_PACKED = 4096          # messages that one get_packed leases
    MOST_UNDER_LOCK = 1 << 20   # bytes copied in one critical section of a batch
    NOGIL_COPY = 1 << 16        # copies from this size on let other threads run
    PATIENCE = 20               # tries for the lock before it is taken without the GIL
    LEAVE_WITHIN = 50000000     # ns
    WAIT_SLICE = 50000000       # ns between two looks for dead processes
    ROOM_SOON = 1000000000      # ns: by then the journal has what was dropped, or it never will
    LEAST_SPIN_OF_RECV = 50000  # ns: the peer's work between two messages varies
    MOST_SPINS = 8              # spins in a row that end well, while others are quicker

# The ways to end or prolong a lease; RETURN ends it as if the message had not been delivered.
cdef enum:
    ACK
    NACK
    REJECT
    EXTEND
    RETURN

# How the holder of a message has settled it; a copy never could.
cdef enum:
    UNSETTLED
    BY_ACK
    BY_NACK
    BY_REJECT
    IS_COPY

cdef tuple _DEEDS = ("", "ack", "nack", "reject")

#: The codecs by their number in a slot, and the number for any other codec.
CODECS = tuple([shmq_codec_name(<uint8_t>number).decode() for number in range(<int>SHMQ_CODECS)])
CODEC_OTHER = <int>SHMQ_CODEC_OTHER
CODEC_PACKED = <int>SHMQ_CODEC_PACKED
cdef tuple _CODECS = CODECS
cdef str _PACKED = CODECS[SHMQ_CODEC_PACKED]

cdef int64_t FOREVER = 0x7FFFFFFFFFFFFFFF
cdef int64_t LONG_AGO = -FOREVER
cdef int64_t AT_ONCE = 0        # the deadline of an operation that waits only for a lock
cdef int64_t UNKNOWN = -1       # a deadline that was not computed from the timeout yet
cdef uint64_t NO_RECEIPT = 0xFFFFFFFFFFFFFFFF


@cython.final
cdef class Policy:
    """The callbacks into the layers above the binding: one object, set before the first handle.

    ``encode_body`` makes bytes and a codec's number of the body of a message or a record, a codec
    and the ``default`` of a connection;
    ``decode_body`` reverses that. ``pack_properties`` and ``unpack_properties`` convert maps:
    headers, and the properties of a message. ``expand`` decompresses a batch of
    records, given the name of its compression. ``columns``, ``run`` and ``dead_letter`` make the
    objects of the API from bytes and properties; ``compile_filter`` makes a `Filter` from an
    expression.
    """

    #| decode_body: Callable[[bytes, int, str], Any]
    #| encode_body: Callable[[Any, str | None, Callable[[Any], Any] | None], tuple[Any, int]]
    cdef readonly object encode_body, decode_body
    #| expand: Callable[[str, bytes, int], bytes]
    #| unpack_properties: Callable[[bytes | None], dict[str, Any]]
    #| pack_properties: Callable[[Mapping[str, Any]], bytes]
    cdef readonly object pack_properties, unpack_properties, expand
    #| compile_filter: Callable[[str], Filter]
    #| dead_letter: Callable[[dict[str, Any]], Any]
    #| run: Callable[[bytes, bytes, bytes], api.Run]
    #| columns: Callable[[bytes], api.Columns]
    cdef readonly object columns, run, dead_letter, compile_filter
    #| failure: Callable[[Any], Any]
    #| pack_error: Callable[[BaseException | api.Failure | str], bytes]
    cdef readonly object failure, pack_error

    def __init__(self, *, encode_body: Callable[[Any, str | None, Callable[[Any], Any] | None],
                                                tuple[Any, int]],
                 decode_body: Callable[[bytes, int, str], Any],
                 pack_properties: Callable[[Mapping[str, Any]], bytes],
                 unpack_properties: Callable[[bytes | None], dict[str, Any]],
                 expand: Callable[[str, bytes, int], bytes],
                 columns: Callable[[bytes], api.Columns],
                 run: Callable[[bytes, bytes, bytes], api.Run],
                 dead_letter: Callable[[dict[str, Any]], Any],
                 compile_filter: Callable[[str], Filter],
                 failure: Callable[[Any], Any],
                 pack_error: Callable[[BaseException | api.Failure | str], bytes]):
        self.encode_body = encode_body
        self.decode_body = decode_body
        self.pack_properties = pack_properties
        self.unpack_properties = unpack_properties
        self.expand = expand
        self.columns = columns
        self.run = run
        self.dead_letter = dead_letter
        self.compile_filter = compile_filter
        self.failure = failure
        self.pack_error = pack_error


# Until one is set, each callback is None, which cannot be called.
cdef Policy _policy = Policy.__new__(Policy)


def set_policy(Policy policy not None):
    """Set the callbacks that the queues, messages and filters of this module use."""
    global _policy
    _policy = policy


# Whether another thread may want the GIL.
cdef inline bint _has_threads():
    return PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) != NULL


cdef inline int64_t _real_now():
    return shmq_read_clock(CLOCK_MONOTONIC)


cdef int64_t _deadline(timeout) except? -1:
    """The deadline of a wait of ``timeout`` seconds in monotonic ns; None means no limit."""
    if timeout is None:
        return FOREVER
    cdef double seconds = _check_timeout(timeout)
    return FOREVER if seconds > 1e9 else _real_now() + <int64_t>(seconds * 1e9)


cpdef object plain_number(value):
    """An int or float for a number of another type, such as NumPy's; anything else unchanged."""
    if isinstance(value, (int, float)):
        return value
    try:
        return PyNumber_Index(value)
    except TypeError:
        return float(value) if isinstance(value, _numbers.Real) else value


# The timeout as an int or float, or None.
cdef object _check_timeout(timeout):
    if timeout is None:
        return None
    timeout = plain_number(timeout)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(
            f"timeout={timeout!r} must be a number of seconds, not {type(timeout).__name__}")
    if not timeout >= 0:
        raise _errors.InvalidOption(f"timeout={timeout} must be 0 or more seconds")
    if timeout > DBL_MAX and isinstance(timeout, int):
        raise _errors.InvalidOption(f"timeout={timeout} is out of range: None waits without a limit")
    return timeout


cdef void _copy(void *to, const void *source, size_t size) noexcept:
    if size >= NOGIL_COPY:
        with nogil:
            memcpy(to, source, size)
    else:
        memcpy(to, source, size)


cdef bytes _process_name():
    try:
        with open("/proc/self/comm", "rb") as file:
            return file.read().strip()[:31]
    except OSError:
        return b"?"


cdef object _whole(str name, value):
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} must be an int, not {type(value).__name__}")
    return value


#: The longest time an option or a delay may name, in seconds (about 31 years).
MAX_SECONDS = 1e9


cpdef double check_seconds(str name, value: object, least: float) except? -1:
    """``value`` as a float, if it is a number of seconds from ``least`` to ``MAX_SECONDS``.

    It may also be a timedelta. Raises TypeError for another type, and :class:`InvalidOption` out of range.
    """
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        if not hasattr(value, "total_seconds"):
            raise TypeError(f"{name}={value!r} must be a number of seconds or a timedelta, not "
                            f"{type(value).__name__}")
        value = value.total_seconds()
    if not least <= value <= MAX_SECONDS:
        raise _errors.InvalidOption(
            f"{name}={value} s is out of range: {least} to {MAX_SECONDS:.0f} s")
    return value


cdef int64_t _span_ns(str what, seconds) except? -1:
    return _ns(check_seconds(what, seconds, 0))


cdef int64_t _delay_ns(delay) except? -2:
    return -1 if delay is None else _span_ns("delay", delay)


def add_to_word(words, Py_ssize_t index, uint64_t number):
    """Add to the 64-bit word at ``index`` of shared memory, atomically. Raises IndexError."""
    cdef Py_buffer view
    PyObject_GetBuffer(words, &view, PyBUF_WRITABLE)
    cdef bint fits = 0 <= index < view.len // 8
    if fits:
        shmq_add(<uint64_t *>view.buf + index, number)
    PyBuffer_Release(&view)
    if not fits:
        raise IndexError(f"word {index} is outside the shared memory")


def mark():
    """Count a store made outside the core, in a build with crash points."""
    shmq_mark()
