# A mapped segment, and the options in it.

LAYOUT_VERSION = SHMQ_LAYOUT_VERSION

cdef uint64_t fork_generation = 1


def forked():
    """Tell the core that this process is a fork's child: handles attach anew."""
    global fork_generation
    fork_generation += 1
    shmq_ring_forked()


def generation() -> int:
    """How many forks of this process and those before it there were, from 1 on.

    What was made in another one is not of this process; it is told at a tenth of what
    ``os.getpid`` costs.
    """
    return fork_generation


cdef int64_t _ns(seconds) except? -1:
    return <int64_t>(seconds * 1e9 + 0.5)


cdef object _seconds(int64_t ns):
    return ns / 1e9


cdef int _copy_name(char *to, str name) except -1:
    cdef bytes raw = name.encode("ascii")
    memset(to, 0, SHMQ_NAME_BYTES)
    memcpy(to, PyBytes_AS_STRING(raw), min(len(raw), SHMQ_NAME_BYTES - 1))
    return 0


_OVERFLOWS = ("reject", "block", "drop-oldest")
_DURABILITIES = ("memory", "snapshot", "journal")


cdef int _pack_options(shmq_options *o, str name, uint64_t queue_id, dict given) except -1:
    memset(o, 0, sizeof(shmq_options))
    o.queue_id = queue_id
    o.arena_bytes = given["arena_bytes"]
    o.max_message_bytes = given["max_message_bytes"]
    o.created_at = shmq_wall()
    o.visibility = _ns(given["visibility_timeout"])
    o.ttl = _ns(given["ttl"] or 0)
    o.retry = _ns(given["retry_delay"])
    o.retry_max = _ns(given["retry_delay_max"])
    o.dedupe_window = _ns(given["dedupe_window"])
    o.snapshot_interval = _ns(given["snapshot_interval"])
    o.hash_key = queue_id
    o.capacity = given["capacity"]
    o.priorities = given["priorities"]
    o.max_deliveries = given["max_deliveries"] or 0
    o.overflow = _OVERFLOWS.index(given["overflow"])
    o.drop_expired = given["on_expired"] == "drop"
    o.dead_letters = given["dead_letter"] is not None
    o.durability = _DURABILITIES.index(given["durability"])
    o.confirm = given["confirm"] == "disk"
    _copy_name(o.name, name)
    _copy_name(o.dead_letter, given["dead_letter"] or "")
    return 0


cdef dict _unpack_options(const shmq_options *o):
    return {
        "capacity": o.capacity,
        "arena_bytes": o.arena_bytes,
        "max_message_bytes": o.max_message_bytes,
        "visibility_timeout": _seconds(o.visibility),
        "max_deliveries": o.max_deliveries or None,
        "dead_letter": o.dead_letter.decode("ascii") if o.dead_letters else None,
        "ttl": _seconds(o.ttl) if o.ttl else None,
        "on_expired": "drop" if o.drop_expired else "dead-letter",
        "priorities": o.priorities,
        "retry_delay": _seconds(o.retry),
        "retry_delay_max": _seconds(o.retry_max),
        "dedupe_window": _seconds(o.dedupe_window),
        "overflow": _OVERFLOWS[o.overflow % 3],
        "durability": _DURABILITIES[o.durability % 3],
        "snapshot_interval": _seconds(o.snapshot_interval),
        "confirm": "disk" if o.confirm else "memory",
    }


cdef object _no_space(int fd, uint64_t wanted):
    space = _os.fstatvfs(fd)
    return _errors.NoSpace(
        f"/dev/shm is full: {wanted} bytes wanted, {space.f_bavail * space.f_frsize} available; "
        f"purge or delete queues, or give it more room (in a container: --shm-size)"
    )


@cython.no_gc_clear
cdef class Segment:
    """The mapping of one queue's segment; lives as long as anything points into it."""

    cdef void *base
    cdef size_t size
    cdef readonly int fd
    cdef shmq_geometry geo

    def __cinit__(self):
        self.base = NULL
        self.fd = -1

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.size)
        if self.fd >= 0:
            close(self.fd)  # not os.close: the module may be gone by now

    cdef int _map(self, size_t size) except -1:
        cdef void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if base == MAP_FAILED:
            raise _errors.not_mapped(errno, size)
        self.base = base
        self.size = size
        return 0

    @staticmethod
    def create(int fd, str name, uint64_t queue_id, dict options, hash_key: int | None = None,
               bint publish=True) -> Segment:
        """Make an empty queue of the open, empty segment file ``fd``, which it then owns.

        ``hash_key``: what groups and dedupe ids are hashed with; by default the queue's id.
        Without ``publish`` nobody can attach until `publish`. Raises NoSpace; the file must
        then be removed.
        """
        cdef Segment self = Segment.__new__(Segment)
        cdef shmq_options o
        cdef shmq_queue q
        cdef int status
        self.fd = fd
        _pack_options(&o, name, queue_id, options)
        if hash_key is not None:
            o.hash_key = hash_key
        shmq_lay_out(&o, &self.geo)
        _os.ftruncate(fd, self.geo.segment_bytes)
        shmq_mark()
        self._map(self.geo.segment_bytes)
        shmq_bind(&q, self.base, fd, &self.geo)
        status = shmq_back(&q, 0, SHMQ_PAGE)
        if status == SHMQ_OK:
            status = shmq_prepare(&q, &o)
        if status == SHMQ_NO_SPACE:
            raise _no_space(fd, q.wanted)
        if status != SHMQ_OK:
            raise _errors.SegmentError(f"the lock of queue {name!r} cannot be made")
        if publish:
            shmq_announce(&q)
        return self

    def publish(self):
        """Let others attach to a segment that was made without."""
        cdef shmq_queue q
        shmq_bind(&q, self.base, self.fd, &self.geo)
        shmq_announce(&q)

    @staticmethod
    def attach(int fd, str name) -> Segment | None:
        """Map the segment file ``fd``, which it then owns, after looking at it.

        Returns None if its maker has not finished. Raises IncompatibleSegment,
        DamagedSegment.
        """
        cdef Segment self = Segment.__new__(Segment)
        cdef uint64_t size = _os.fstat(fd).st_size
        cdef int status
        self.fd = fd
        if not any(_os.pread(fd, 8, 0)):
            return None  # the version is stored last; before, there need not be memory to look at
        if size < SHMQ_PAGE:
            size = _os.fstat(fd).st_size  # its maker may have finished between the two
        if size < SHMQ_PAGE:
            raise _errors.DamagedSegment(
                f"the segment of queue {name!r} is truncated: {size} bytes are left; "
                f"delete the queue"
            )
        self._map(size)
        status = shmq_inspect(self.base, size, size, &self.geo)
        if status == SHMQ_NOT_READY:
            return None
        if status == SHMQ_INCOMPATIBLE:
            raise _errors.IncompatibleSegment(
                f"the segment of queue {name!r} has layout version "
                f"{shmq_version_of(self.base)}, this shmq has {LAYOUT_VERSION}: use the shmq "
                f"it was made with, or delete the queue"
            )
        if status == SHMQ_TRUNCATED:
            raise _errors.DamagedSegment(
                f"the segment of queue {name!r} is truncated: it has {size} of "
                f"{self.geo.segment_bytes} bytes; delete the queue"
            )
        if status != SHMQ_OK:
            raise _errors.DamagedSegment(
                f"the segment of queue {name!r} is damaged: its header contradicts itself; "
                f"delete the queue"
            )
        return self

    @property
    def queue_id(self) -> int:
        """The queue's id: another for each queue, even of the same name."""
        return (<shmq_header *>self.base).options.queue_id

    @property
    def hash_key(self) -> int:
        """What its groups and dedupe ids are hashed with; it outlives the queue's id."""
        return (<shmq_header *>self.base).options.hash_key

    @property
    def created_at(self) -> float:
        """When the queue was made, in seconds since 1970."""
        return (<shmq_header *>self.base).options.created_at / 1e9

    @property
    def options(self) -> dict[str, Any]:
        """The queue's options by name."""
        return _unpack_options(&(<shmq_header *>self.base).options)

    @property
    def deleted(self) -> bool:
        """Whether the queue has been deleted."""
        return (<shmq_header *>self.base).state == SHMQ_GONE


def segment_bytes(dict options: Mapping[str, Any]) -> int:
    """The bytes of the segment of a queue with these options, all of them given."""
    cdef shmq_options o
    cdef shmq_geometry geo
    _pack_options(&o, "q", 1, options)
    shmq_lay_out(&o, &geo)
    return geo.segment_bytes


def unfinished_id(int fd) -> int:
    """The queue id in a segment that its maker did not finish, or 0."""
    raw = _os.pread(fd, 16, 0)
    return int.from_bytes(raw[8:16], "little") if len(raw) == 16 else 0


def layout_of(int fd) -> int | None:
    """The layout version that a segment file says it has; None if it is no whole segment."""
    published = int.from_bytes(_os.pread(fd, 8, 0), "little")
    return published & 0xFFFFFFFF if published >> 32 == SHMQ_MAGIC else None


def siphash(uint64_t key, bytes data) -> tuple[int, int]:
    """The 128-bit hash of ``data`` under ``key``, as two ints: see shmq/core/base/siphash.h."""
    cdef uint64_t pair[2]
    shmq_siphash(key, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), pair)
    return pair[0], pair[1]
