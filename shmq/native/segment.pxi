# A mapped segment, the options in it, and its deletion.

LAYOUT_VERSION = SHMQ_LAYOUT_VERSION
MAX_CAPACITY = <int>SHMQ_MAX_CAPACITY
MAX_PRIORITIES = <int>SHMQ_MAX_PRIORITIES
MAX_ERROR_BYTES = <int>SHMQ_ERROR_BYTES
MAX_NAME = <int>SHMQ_NAME_MAX

cdef uint64_t fork_generation = 1


def forked():
    """Tell the core that this process is a forked child: its handles must attach again."""
    global fork_generation
    fork_generation += 1
    shmq_wakeups_forked()


# Before the handlers of all modules that import this one: what they close belongs to the parent.
_os.register_at_fork(after_in_child=forked)


def generation() -> int:
    """The number of forks that led to this process, counted from 1.

    Objects made under another number belong to another process. Costs a tenth of
    ``os.getpid``.
    """
    return fork_generation


cdef int64_t _ns(seconds) except? -1:
    return <int64_t>(seconds * 1e9 + 0.5)


cdef int _pack_options(shmq_options *o, str name, uint64_t queue_id, dict given) except -1:
    memset(o, 0, sizeof(shmq_options))
    o.queue_id = queue_id
    o.hash_key = queue_id
    o.created_at = shmq_wall()
    _copy_name(o.name, name)
    o.dead_letters = given["dead_letter"] is not None
    _pack_given(o, given)
    o.capacity = o.policies[0].capacity
    o.arena_bytes = o.policies[0].arena_bytes
    return 0


# transfer of a queue: made by tools/options.py
_ON_EXPIRED = ("dead-letter", "drop")
_OVERFLOW = ("reject", "block", "drop-oldest")
_DURABILITY = ("memory", "snapshot", "journal")
_CONFIRM = ("memory", "disk")


cdef int _pack_given(shmq_options *o, dict given) except -1:
    cdef shmq_policies *p = &o.policies[0]
    p.capacity = given["capacity"]
    p.arena_bytes = given["arena_bytes"]
    p.max_message_bytes = given["max_message_bytes"]
    p.visibility = <int64_t>((given["visibility_timeout"]) * 1e9 + 0.5)
    p.max_deliveries = given["max_deliveries"] or 0
    _copy_name(o.dead_letter, given["dead_letter"] or "")
    p.error_bytes = given["error_bytes"]
    p.ttl = <int64_t>((given["ttl"] or 0) * 1e9 + 0.5)
    p.dead_letter_ttl = <int64_t>((given["dead_letter_ttl"] or 0) * 1e9 + 0.5)
    p.drop_expired = _ON_EXPIRED.index(given["on_expired"])
    o.priorities = given["priorities"]
    p.retry = <int64_t>((given["retry_delay"]) * 1e9 + 0.5)
    p.retry_max = <int64_t>((given["retry_delay_max"]) * 1e9 + 0.5)
    o.dedupe_window = <int64_t>((given["dedupe_window"]) * 1e9 + 0.5)
    p.overflow = _OVERFLOW.index(given["overflow"])
    o.durability = _DURABILITY.index(given["durability"])
    p.snapshot_interval = <int64_t>((given["snapshot_interval"]) * 1e9 + 0.5)
    p.confirm = _CONFIRM.index(given["confirm"])
    p.expires = <int64_t>((given["expires"] or 0) * 1e9 + 0.5)
    o.auto_delete = bool(given["auto_delete"])
    o.exclusive = bool(given["exclusive"])
    return 0


cdef dict _unpack_options(const shmq_options *o, const shmq_policies *p):
    return {
        "capacity": p.capacity,
        "arena_bytes": p.arena_bytes,
        "max_message_bytes": p.max_message_bytes,
        "visibility_timeout": p.visibility / 1e9,
        "max_deliveries": p.max_deliveries or None,
        "dead_letter": o.dead_letter.decode("ascii") or None,
        "error_bytes": p.error_bytes,
        "ttl": p.ttl / 1e9 if p.ttl else None,
        "dead_letter_ttl": p.dead_letter_ttl / 1e9 if p.dead_letter_ttl else None,
        "on_expired": _ON_EXPIRED[p.drop_expired % 2],
        "priorities": o.priorities,
        "retry_delay": p.retry / 1e9,
        "retry_delay_max": p.retry_max / 1e9,
        "dedupe_window": o.dedupe_window / 1e9,
        "overflow": _OVERFLOW[p.overflow % 3],
        "durability": _DURABILITY[o.durability % 3],
        "snapshot_interval": p.snapshot_interval / 1e9,
        "confirm": _CONFIRM[p.confirm % 2],
        "expires": p.expires / 1e9 if p.expires else None,
        "auto_delete": bool(o.auto_delete),
        "exclusive": bool(o.exclusive),
    }
# end


@cython.no_gc_clear
cdef class Segment(MappedFile):
    """The mapping of one queue's segment. It lives as long as anything points into it."""

    cdef readonly Process process  # this one, for the locks
    cdef shmq_geometry geo

    cdef void _bind(self, shmq_queue *q) noexcept:
        shmq_bind(q, self.base, self.fd, &self.geo, &self.process.c)

    @staticmethod
    def create(int fd, str name, Process process not None, uint64_t queue_id, dict options,
               hash_key: int | None = None, bint publish=True) -> Segment:
        """Make an empty queue in the open, empty segment file ``fd`` and take ownership of ``fd``.

        ``hash_key`` is the key for hashing groups and dedupe ids; by default the queue's id.
        Without ``publish`` no process can attach until `publish` is called. Raises NoSpace; the
        caller must then remove the file.
        """
        cdef Segment self = Segment.__new__(Segment)
        cdef shmq_options o
        cdef shmq_queue q
        cdef int status
        self.fd = fd
        self.process = process
        _pack_options(&o, name, queue_id, options)
        if hash_key is not None:
            o.hash_key = hash_key
        shmq_lay_out(&o, &self.geo)
        _os.ftruncate(fd, self.geo.segment_bytes)
        shmq_mark()
        self._map(self.geo.segment_bytes)
        self._bind(&q)
        status = shmq_back(&q, 0, SHMQ_PAGE)
        if status != SHMQ_OK:
            raise _no_space(fd, q.refused_bytes)
        shmq_prepare(&q, &o)
        if publish:
            shmq_announce(&q)
        return self

    def publish(self):
        """Let processes attach to a segment that was made without ``publish``."""
        cdef shmq_queue q
        self._bind(&q)
        shmq_announce(&q)

    @staticmethod
    def attach(int fd, str name, Process process not None) -> Segment | None:
        """Map the segment file ``fd`` and take ownership of ``fd``, after checking it.

        Returns None if its creator has not finished. Raises IncompatibleSegment,
        DamagedSegment.
        """
        cdef Segment self = Segment.__new__(Segment)
        cdef uint64_t size = _os.fstat(fd).st_size
        cdef int status
        self.fd = fd
        self.process = process
        if not any(_os.pread(fd, 8, 0)):
            return None  # the version is stored last; before that the file may have no memory yet
        if size < SHMQ_PAGE:
            size = _os.fstat(fd).st_size  # the creator may have finished between the two
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
        """The queue's id, unique even among queues of the same name."""
        return (<shmq_header *>self.base).options.queue_id

    @property
    def hash_key(self) -> int:
        """The key for hashing groups and dedupe ids; a restored queue keeps it, with a new id."""
        return (<shmq_header *>self.base).options.hash_key

    @property
    def created_at(self) -> float:
        """When the queue was made, in seconds since 1970."""
        return (<shmq_header *>self.base).options.created_at / 1e9

    @property
    def options(self) -> dict[str, Any]:
        """The queue's options by name. Raises DamagedSegment."""
        return self.read_options()[0]

    def read_options(self) -> tuple[dict[str, Any], int]:
        """The queue's options by name, and how often they were altered. Raises DamagedSegment."""
        cdef shmq_header *h = <shmq_header *>self.base
        cdef shmq_policies policies
        cdef uint32_t alterations
        if not shmq_read_policies(h, &policies, &alterations):
            raise _errors.DamagedSegment(
                f"the segment of queue {(<bytes>h.options.name).decode()!r} is damaged: its options "
                f"contradict their checksum; delete the queue")
        return _unpack_options(&h.options, &policies), alterations

    def processes(self) -> set[int]:
        """The numbers of the attached processes. Reads without the lock, so only a hint."""
        cdef shmq_queue q
        cdef uint32_t at
        cdef set numbers = set()
        self._bind(&q)
        for at in range(min(q.h.attachments_made, SHMQ_MAX_ATTACHMENTS)):
            if q.attachments[at].process:
                numbers.add(q.attachments[at].process)
        return numbers

    @property
    def is_temporary(self) -> bool:
        """Whether the queue ends by itself: by ``expires``, ``auto_delete`` or ``exclusive``."""
        cdef shmq_options *o = &(<shmq_header *>self.base).options
        return shmq_policies_now(<shmq_header *>self.base).expires != 0 or o.auto_delete or o.exclusive

    @property
    def is_exclusive(self) -> bool:
        """Whether the queue belongs to the process that made it."""
        return (<shmq_header *>self.base).options.exclusive

    @property
    def is_unused(self) -> bool:
        """Whether the queue ends for lack of consumers. Reads without the lock, so only a hint."""
        cdef shmq_queue q
        self._bind(&q)
        return shmq_is_unused(&q, shmq_now())

    def consumers(self) -> set[int]:
        """The numbers of the processes that consume. Reads without the lock, so only a hint."""
        cdef shmq_queue q
        cdef uint32_t at
        cdef set numbers = set()
        self._bind(&q)
        for at in range(min(q.h.attachments_made, SHMQ_MAX_ATTACHMENTS)):
            if q.attachments[at].consumes and q.attachments[at].process:
                numbers.add(q.attachments[at].process)
        return numbers

    def counts(self) -> tuple[int, int, int, int] | None:
        """(visible, delayed, leased, capacity), without a handle; None: only a handle can tell.

        None if maintenance is due, if a process sleeps that may have to be woken, if the lock is
        held, if this process has no number yet, or if the queue is deleted or damaged. What dead
        processes hold is the caller's to find out: see `processes`.
        """
        cdef shmq_queue q
        cdef uint32_t visible = 0, delayed = 0, leased = 0, capacity = 0
        cdef bint found
        self._bind(&q)
        if (q.h.asleep[0] or q.h.asleep[1] or shmq_armed(q.h, SHMQ_NOT_EMPTY)
                or shmq_armed(q.h, SHMQ_NOT_FULL) or shmq_lock_gets(&q) != SHMQ_OK):
            return None
        found = not (q.h.staged or q.h.spent or q.h.dying.head != SHMQ_NIL
                     or shmq_next_due(&q) <= shmq_now() or q.damaged)  # which all of these may set
        if found:
            visible = q.h.visible + shmq_inbox_count(q.h)
            delayed, leased = q.h.delayed, q.h.leased
            capacity = shmq_policies_now(q.h).capacity
        shmq_unlock_unchanged(&q)  # a process may have fallen asleep since: its waker wakes it
        return (visible, delayed, leased, capacity) if found else None

    @property
    def mapped(self) -> int:
        """How many bytes of the file are mapped."""
        return self.size

    @property
    def deleted(self) -> bool:
        """Whether the queue has been deleted."""
        return (<shmq_header *>self.base).state == SHMQ_GONE


def segment_bytes(dict options: Mapping[str, Any]) -> int:
    """The bytes that a queue with these options, all of which must be given, can take."""
    cdef shmq_options o
    _pack_options(&o, "q", 1, options)
    return shmq_most_bytes(&o, &o.policies[0])


def unfinished_id(int fd) -> int:
    """The queue id in a segment that its creator did not finish, or 0."""
    raw = _os.pread(fd, 16, 0)
    return int.from_bytes(raw[8:16], "little") if len(raw) == 16 else 0


def layout_of(int fd) -> int | None:
    """The layout version that a segment file declares; None if it is not a complete segment."""
    published = int.from_bytes(_os.pread(fd, 8, 0), "little")
    return published & 0xFFFFFFFF if published >> 32 == SHMQ_MAGIC else None


def siphash(uint64_t key, bytes data) -> tuple[int, int]:
    """The 128-bit hash of ``data`` under ``key``, as two ints: see shmq/core/base/siphash.h."""
    cdef uint64_t pair[2]
    shmq_siphash(key, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), pair)
    return pair[0], pair[1]


cdef object _lock_timeout(const shmq_queue *q, str name, int64_t waited):
    """The error of a wait of ``waited`` ns for the lock of queue ``name``."""
    cdef uint64_t holder = shmq_lock_holder(q)
    cdef uint32_t at, pid = shmq_pid_of(q.self, holder)
    cdef shmq_attachment *a
    elsewhere = ""
    for at in range(0 if pid else min(q.h.attachments_made, SHMQ_MAX_ATTACHMENTS)):
        a = &q.attachments[at]
        if holder and a.process == holder:
            name_ = a.name[:sizeof(a.name)].split(b"\0")[0].decode(errors="replace")
            elsewhere = f"{name_}, PID {a.pid} of another PID namespace"
    return _holders.lock_timeout(f"queue {name!r}", pid, waited / 1e9, holder, elsewhere)


def mark_deleted(Segment segment, str not_empty, str not_full, str wakeup_prefix):
    """Refuse every operation on the queue from now on, and wake all waiters.

    ``not_empty`` and ``not_full`` name its semaphores; ``wakeup_prefix`` is the prefix of the paths
    of the namespace's wakeups. Raises LockTimeout; the queue is unchanged then.
    """
    cdef bytes stem = wakeup_prefix.encode()
    cdef shmq_queue q
    cdef uint32_t post[2]
    cdef uint32_t asleep[2]
    cdef int status = SHMQ_BUSY
    cdef int64_t waited = 0, slice_
    cdef sem_t *semaphore
    segment._bind(&q)
    q.wakeup_prefix = PyBytes_AS_STRING(stem)
    segment.process.register()
    while status == SHMQ_BUSY:
        slice_ = shmq_patience(waited, AT_ONCE, q.self, shmq_lock_holder(&q))
        if not slice_:
            raise _lock_timeout(&q, (<bytes>q.h.options.name).decode(), waited)
        with nogil:
            status = shmq_lock_even_deleted(&q, slice_)
        waited += slice_
        PyErr_CheckSignals()
    q.h.state = SHMQ_GONE
    shmq_mark()
    asleep[0], asleep[1] = q.h.asleep[0], q.h.asleep[1]
    if status == SHMQ_OK:
        shmq_unlock(&q, post)
    shmq_wake_parties(&q)
    shmq_wake_synced(&q)
    shmq_wake_writer(&q)
    for event, name in enumerate((not_empty, not_full)):
        raw = name.encode()
        semaphore = _open_semaphore(raw)
        if semaphore == SEM_FAILED:
            continue
        for _ in range(min(asleep[event], 65536)):
            sem_post(semaphore)
        _close_semaphore(semaphore, _is_in_file(raw))
