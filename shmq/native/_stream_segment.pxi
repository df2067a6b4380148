# The mapped segments of a stream, and the options in them; constants, the policy, and errors that
# several files raise.

cdef enum:
    WAIT_SLICE = 50000000        # ns
    WRITER_SLICE = 250000000     # ns: how soon a wait for the disk notices that the writer is gone
    NOGIL_BYTES = 1 << 16        # copies from this size on let other threads run
    SHORT_BATCH = 1024           # values that a short append takes
    LOAN_PATIENCE = 1000000000   # ns to wait for the lock to end a loan
    LEAST_SPIN = 100000          # ns: a record of 1 MiB takes as long to write
    ROOM_SPINS = 40              # tries of an append to a full ring before it sleeps
    ROOM_YIELDS = 4              # of them, after which it lets others run
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
    cdef double seconds = _check_timeout(timeout)
    return FOREVER if seconds > 1e9 else _monotonic() + <int64_t>(seconds * 1e9)


cdef object _whole(str what, value):
    """The int that ``value`` is, or that a number such as NumPy's stands for."""
    if not isinstance(value, int):
        try:
            return PyNumber_Index(value)
        except TypeError:
            pass
    elif not isinstance(value, bool):
        return value
    raise TypeError(f"{what}={value!r} must be an int, not {type(value).__name__}")


cdef uint64_t _natural(str what, value) except? 0xFFFFFFFFFFFFFFFF:
    value = _whole(what, value)
    if not 0 <= value < 1 << 63:
        raise _errors.InvalidOption(f"{what}={value} is out of range: 0 to {(1 << 63) - 1}")
    return value


cdef uint64_t _positive(str what, value) except 0:
    value = _whole(what, value)
    if value < 1:
        raise _errors.InvalidOption(f"{what}={value} must be 1 or more")
    return _natural(what, value)


cdef int64_t _wall_ns(timestamp) except? -1:
    """An append's timestamp in ns since 1970; 0, which means now, for None."""
    if timestamp is None:
        return 0
    timestamp = _plain_number(timestamp)
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
    timestamp = _plain_number(timestamp)
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


def _forget_wakeups():
    shmq_wakeups_forked()


# A forked child has none of its parent's threads: none of them holds the module's lock.
_os.register_at_fork(after_in_child=_forget_wakeups)


cdef object _deleted_error(str name):
    return _errors.StreamDeleted(f"stream {name!r} was deleted")


cdef object _damaged_error(str name):
    return _errors.DamagedSegment(
        f"a segment of stream {name!r} is damaged: its entries contradict each other; "
        f"delete the stream")


MAX_PARTITIONS = <int>SHMQ_MAX_PARTITIONS


cdef int _pack_options(shmq_log_options *o, str name, uint64_t stream_id, uint64_t identity,
                       dict given) except -1:
    memset(o, 0, sizeof(shmq_log_options))
    o.stream_id = stream_id
    o.identity = identity
    o.created_at = shmq_wall()
    _copy_name(o.name, name)
    return _pack_given(o, given)


def partition_bytes(dict options: Mapping[str, Any]) -> int:
    """The most memory of each partition with these options, all of which must be given."""
    cdef shmq_log_options o
    _pack_options(&o, "s", 1, 1, options)
    return shmq_log_most_bytes(&o)


# transfer of a stream: made by tools/options.py
_DURABILITY = ("memory", "journal")
_OVERFLOW = ("drop-oldest", "block")
_CONFIRM = ("memory", "disk")


cdef int _pack_given(shmq_log_options *o, dict given) except -1:
    o.partitions = given["partitions"]
    o.ring_bytes = given["ring_bytes"]
    o.retention_bytes = given["retention_bytes"] or 0
    o.retention = <int64_t>((given["retention_seconds"] or 0) * 1e9 + 0.5)
    o.durability = _DURABILITY.index(given["durability"])
    o.overflow = _OVERFLOW.index(given["overflow"])
    o.max_record_bytes = given["max_record_bytes"]
    o.confirm = _CONFIRM.index(given["confirm"])
    o.segment_bytes = given["segment_bytes"]
    return 0


cdef dict _unpack_options(const shmq_log_options *o):
    return {
        "partitions": o.partitions,
        "ring_bytes": o.ring_bytes,
        "retention_bytes": o.retention_bytes or None,
        "retention_seconds": o.retention / 1e9 if o.retention else None,
        "durability": _DURABILITY[o.durability % 2],
        "overflow": _OVERFLOW[o.overflow % 2],
        "max_record_bytes": o.max_record_bytes,
        "confirm": _CONFIRM[o.confirm % 2],
        "segment_bytes": o.segment_bytes,
    }
# end


cdef int _judge(int status, str what, uint64_t version, int ours) except -1:
    """Raise the error for a segment that is refused; 0: it is usable, 1: it is not ready."""
    if status == SHMQ_OK:
        return 0
    if status == SHMQ_NOT_READY:
        return 1
    if status == SHMQ_INCOMPATIBLE:
        raise _errors.IncompatibleSegment(
            f"the segment of {what} has layout version {version & 0xFFFFFFFF}, this shmq has "
            f"{ours}: use the shmq it was made with, or delete the stream"
        )
    why = "truncated" if status == SHMQ_TRUNCATED else "damaged: its header contradicts itself"
    raise _errors.DamagedSegment(f"the segment of {what} is {why}; delete the stream")


@cython.final
cdef class Control(MappedFile):
    """The control segment of a stream: its options and its wakeup word."""

    cdef readonly str name
    cdef object process  # this one, for the locks: a _core.Process
    cdef shmq_process *self_
    cdef bytes wakeup_prefix

    @staticmethod
    def create(int fd, str name, process: _core.Process, str wakeup_prefix, uint64_t stream_id,
               uint64_t identity, dict options) -> Control:
        """Make the control segment in the empty file ``fd`` and take ownership of ``fd``.

        ``wakeup_prefix`` is the prefix of the paths of the namespace's wakeups. No process can
        attach until `publish`. Raises NoSpace; the caller must then remove the file.
        """
        cdef Control self = Control.__new__(Control)
        cdef shmq_log_options o
        self.fd = fd
        self.name = name
        self._know(process, wakeup_prefix)
        _pack_options(&o, name, stream_id, identity, options)
        _os.ftruncate(fd, SHMQ_PAGE + SHMQ_GROUP_STATE_BYTES)
        shmq_mark()
        try:
            _os.posix_fallocate(fd, 0, SHMQ_PAGE)
        except OSError as error:
            raise _no_space(fd, SHMQ_PAGE) from error
        shmq_mark()
        self._map(SHMQ_PAGE + SHMQ_GROUP_STATE_BYTES)
        shmq_stream_prepare(<shmq_stream *>self.base, &o)
        return self

    cdef int _know(self, process, str wakeup_prefix) except -1:
        self.wakeup_prefix = wakeup_prefix.encode()
        self.process = process
        self.self_ = <shmq_process *><size_t>process.address
        return 0

    def publish(self):
        """Let processes attach: all partitions exist."""
        shmq_stream_announce(<shmq_stream *>self.base)

    @staticmethod
    def attach(int fd, str name, process: _core.Process, str wakeup_prefix) -> Control | None:
        """Map the control segment ``fd`` and take ownership of ``fd``, after checking it.

        ``wakeup_prefix`` is the prefix of the paths of the namespace's wakeups. Returns None if its
        creator has not finished. Raises IncompatibleSegment, DamagedSegment.
        """
        cdef Control self = Control.__new__(Control)
        cdef uint64_t size = _os.fstat(fd).st_size
        self.fd = fd
        self.name = name
        self._know(process, wakeup_prefix)
        if not any(_os.pread(fd, 8, 0)):
            return None  # it may have no memory yet, and touching the mapping would crash
        if size < SHMQ_PAGE + SHMQ_GROUP_STATE_BYTES:
            _judge(SHMQ_TRUNCATED, f"stream {name!r}", 0, SHMQ_STREAM_VERSION)
        self._map(SHMQ_PAGE + SHMQ_GROUP_STATE_BYTES)
        if _judge(shmq_stream_inspect(self.base, size), f"stream {name!r}",
                  (<shmq_stream *>self.base).published, SHMQ_STREAM_VERSION):
            return None
        return self

    @property
    def stream_id(self) -> int:
        """The id of this incarnation of the stream."""
        return (<shmq_stream *>self.base).options.stream_id

    @property
    def identity(self) -> int:
        """An id that differs even between streams of the same name; it outlives `stream_id`."""
        return (<shmq_stream *>self.base).options.identity

    @property
    def created_at(self) -> float:
        """When the stream was made, in seconds since 1970."""
        return (<shmq_stream *>self.base).options.created_at / 1e9

    @property
    def options(self) -> dict[str, Any]:
        """The stream's options by name; ``partitions`` counts those that take records."""
        cdef shmq_log_options o
        self._read(&o)
        found = _unpack_options(&o)
        begin, count = self.shape
        found["partitions"] = count - begin
        return found

    # Copies the options of now; returns how many alterations led to them.
    cdef uint32_t _read(self, shmq_log_options *o) except? 0xFFFFFFFF:
        cdef uint32_t alterations
        if not shmq_stream_read(<shmq_stream *>self.base, o, &alterations):
            raise _errors.DamagedSegment(
                f"the segment of stream {self.name!r} is damaged: its options contradict their "
                f"checksum; delete the stream")
        return alterations

    @property
    def alterations(self) -> int:
        """How often the options were altered."""
        return (<shmq_stream *>self.base).alterations

    @property
    def most_ring_bytes(self) -> int:
        """The most ring_bytes that the stream can be altered to."""
        cdef shmq_log_options o = (<shmq_stream *>self.base).options
        shmq_log_greatest(&o)
        return o.ring_bytes

    def alter(self, dict options: Mapping[str, Any]):
        """Make these the stream's options, all of which must be given; ``partitions`` stays.

        Each partition follows with its next append, or with `Partition.apply`. Needs the registry
        lock.
        """
        cdef shmq_log_options o
        self._read(&o)
        cdef uint32_t partitions = o.partitions
        _pack_given(&o, options)
        o.partitions = partitions
        shmq_stream_alter(<shmq_stream *>self.base, &o)

    @property
    def stored(self) -> int:
        """The number of `alterations` whose options the stream's files have."""
        return (<shmq_stream *>self.base).stored

    @stored.setter
    def stored(self, uint32_t alterations):
        (<shmq_stream *>self.base).stored = alterations
        shmq_mark()

    @property
    def shape(self) -> tuple[int, int]:
        """The first partition that takes records, and how many partitions there are."""
        cdef uint64_t shape = shmq_stream_shape(<shmq_stream *>self.base)
        self._check_shape(shape)
        return <uint32_t>(shape >> 32), <uint32_t>shape

    @property
    def next_shape(self) -> tuple[int, int] | None:
        """The shape to come, if a change of it has started; else None."""
        cdef uint64_t shape = shmq_stream_next_shape(<shmq_stream *>self.base)
        if not shape:
            return None
        self._check_shape(shape)
        return <uint32_t>(shape >> 32), <uint32_t>shape

    def intend(self, uint32_t begin, uint32_t count):
        """Announce the shape to come; its partitions exist already."""
        shmq_stream_intend(<shmq_stream *>self.base, <uint64_t>begin << 32 | count)

    def reshape(self, uint32_t begin, uint32_t count):
        """Complete the change of shape: all partitions before ``begin`` are sealed."""
        shmq_stream_reshape(<shmq_stream *>self.base, <uint64_t>begin << 32 | count)

    cdef int _check_shape(self, uint64_t shape) except -1:
        if not shmq_stream_is_shape(<shmq_stream *>self.base, shape):
            raise _errors.DamagedSegment(
                f"the segment of stream {self.name!r} is damaged: it says that partitions "
                f"{shape >> 32} to {<int64_t>(shape & 0xFFFFFFFF) - 1} take records; "
                f"delete the stream")
        return 0

    @property
    def deleted(self) -> bool:
        """Whether the stream has been deleted."""
        return (<shmq_stream *>self.base).state == SHMQ_GONE

    @property
    def address(self) -> int:
        """Where it is mapped in this process: for `shmq.native._group` alone."""
        return <size_t>self.base

    def mark_deleted(self):
        """Mark the stream as deleted. Its users notice once its partitions are marked, too."""
        (<shmq_stream *>self.base).state = SHMQ_GONE
        shmq_mark()

    cdef int _check(self) except -1:
        if (<shmq_stream *>self.base).state == SHMQ_GONE:
            raise _deleted_error(self.name)
        return 0


@cython.final
cdef class LoopWatch:
    """The party of an event loop in a stream: an append posts its wakeup, once after each `arm`."""

    cdef Control control
    cdef uint32_t party, number
    cdef uint64_t process
    cdef pid_t pid

    def __cinit__(self, Control control not None, uint64_t process, uint32_t number):
        """The loop's wakeup is that ``number`` of the ``process``, which is this one."""
        self.control = control
        self.party = SHMQ_NIL
        self.number = number
        self.process = process
        self.pid = getpid()

    def __del__(self):
        self.leave()

    def arm(self):
        """Have the next append to a partition that is armed after this post the wakeup.

        If the stream has no free party, nothing posts it.
        """
        cdef shmq_stream *stream = <shmq_stream *>self.control.base
        if self.party == SHMQ_NIL:
            self.party = shmq_stream_join(stream, self.control.self_, self.process, self.number)
        if self.party != SHMQ_NIL:
            shmq_stream_arm(stream, self.party)

    @property
    def has_party(self) -> bool:
        """Whether an append posts the wakeup once it is armed."""
        return self.party != SHMQ_NIL

    @property
    def is_armed(self) -> bool:
        """Whether there was no append since `arm` to a partition that was armed after it."""
        return self.party != SHMQ_NIL \
            and shmq_stream_is_armed(<shmq_stream *>self.control.base, self.party)

    def leave(self):
        """Release the party; in the child of a fork it is the parent's, and stays."""
        if self.party != SHMQ_NIL and self.pid == getpid():
            shmq_stream_leave(<shmq_stream *>self.control.base, self.party)
        self.party = SHMQ_NIL
