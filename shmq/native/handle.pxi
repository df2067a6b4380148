# A handle: one attachment of one process to one queue, with what a put, a get and an ack need. Other
# work is done by parts that refer to the handle and are made on demand: Bulk, Inspection,
# JournalProgress, Staging, Transfer, Watch.

@cython.no_gc_clear
cdef class Handle(_Putting):
    """One attachment to a queue. shmq.client.local.broker builds its queue on it."""

    cdef shmq_queue q
    cdef readonly Segment segment
    cdef readonly str name
    cdef bytes wakeup_prefix       # what q.wakeup_prefix points to
    cdef sem_t *semaphores[2]
    cdef bint in_files             # of the semaphores: they are mapped files
    cdef uint64_t generation
    cdef uint64_t number           # this process's number in the namespace
    cdef shmq_spin_rate spins[2]   # one for each event
    cdef int64_t looked_at         # when this handle last looked for dead processes
    cdef int64_t guarded_until     # a process watches for deaths until then, at least
    cdef uint32_t views            # pins that this handle's process holds
    cdef uint32_t awake[2]         # by event: awake, but still counted as asleep
    cdef uint32_t watched[2]       # by event: of these, counted as watchers
    cdef bint is_idle              # a sleep lasted for a slice without a post, and none since
    cdef int disk_error            # for which the latest wait for the journal ended
    #| interrupted: Callable[[], bool] | None
    cdef public object interrupted # whether operations must not wait any more: asked before a sleep
    #| ready_event: Any
    cdef public object ready_event # of its `fileno`: cleared by a get that finds nothing; None: no call
    #| default: Callable[[Any], Any] | None
    cdef public object default     # of `connect`: makes values that a body can hold of others
    cdef bint open_
    cdef bint tending
    cdef readonly bint is_temporary  # at its creation: consumers are counted in case it ends by itself
    cdef readonly bint is_consumer   # this handle is one of them

    def __cinit__(self, *args, **kwargs):
        self.semaphores[0] = self.semaphores[1] = NULL
        self.open_ = False
        self.views = 0
        self.guarded_until = 0
        self.awake[0] = self.awake[1] = self.watched[0] = self.watched[1] = 0
        self.is_idle = False
        self.q.attachment = SHMQ_NIL

    def __init__(self, str name, Segment segment, not_empty: str, not_full: str,
                 wakeup_prefix: str):
        """Bind the handle; ``not_empty`` and ``not_full`` name existing semaphores.

        ``wakeup_prefix`` is the prefix of the paths of the namespace's wakeups.
        """
        self.name = name
        self.segment = segment
        segment._bind(&self.q)
        self.wakeup_prefix = wakeup_prefix.encode()
        self.q.wakeup_prefix = PyBytes_AS_STRING(self.wakeup_prefix)
        self.is_temporary = segment.is_temporary
        for event in range(2):
            shmq_spin_init(&self.spins[event], 0)
        for event, path in enumerate((not_empty, not_full)):
            raw = path.encode()
            self.in_files = _is_in_file(raw)
            self.semaphores[event] = _open_semaphore(raw)
            if self.semaphores[event] == SEM_FAILED:
                self.semaphores[event] = NULL
                raise self._no_semaphore(path, errno)
        self.open_ = True
        self._attach()

    def __dealloc__(self):
        if self.open_ and self.generation == fork_generation:
            with nogil:
                self._leave()
        for event in range(2):
            if self.semaphores[event] != NULL:
                _close_semaphore(self.semaphores[event], self.in_files)

    cdef object _no_semaphore(self, path, int error):
        if error == ENOENT and self.segment.deleted:
            return _errors.NoSuchQueue(f"queue {self.name!r} is being deleted")
        if error == ENOENT:
            return _errors.DamagedSegment(
                f"queue {self.name!r} has lost its semaphore {path}: it was half removed; delete "
                f"it and recreate it"
            )
        return _errors.no_descriptor(OSError(
            error, f"queue {self.name!r}: cannot open its semaphore: {_os.strerror(error)}", path))

    # ---- its parts ----

    @property
    def journal(self) -> JournalProgress:
        """How far the queue's journal is on disk."""
        return JournalProgress(self)

    @property
    def inspection(self) -> Inspection:
        """The queue's counters and messages, without leases."""
        return Inspection(self)

    @property
    def transfer(self) -> Transfer:
        """Moving messages from this queue to another, and from others here."""
        return Transfer(self)

    @property
    def staging(self) -> Staging:
        """Rows in chunks: packing them for this queue, listing them in it, moving them here."""
        return Staging(self)

    # ---- overridden by the layer above ----

    def _process_number(self) -> int:
        """This process's number in the namespace; > 0."""
        raise NotImplementedError

    def _look_for_dead(self):
        """Reclaim what dead processes hold."""
        raise NotImplementedError

    def _check_owner(self):
        """Raise Forbidden if the queue is exclusive to another process."""
        raise NotImplementedError

    def rouse(self):
        """Wake all who sleep until there is a message, or room: they ask ``interrupted``."""
        cdef uint32_t post[2]
        cdef int event
        shmq_fence()
        for event in range(2):
            post[event] = min(self.q.h.asleep[event], <uint32_t>SHMQ_MAX_ATTACHMENTS)
        shmq_post(self.semaphores, post)

    def notice_deaths(self, asked: dict[tuple[str, int], bool]) -> None:
        """Reclaim what dead processes hold, if there are any.

        ``asked`` caches which processes are alive, by namespace and number.
        """
        raise NotImplementedError

    def is_guarded(self) -> bool:
        """Whether a process of the namespace, maybe this one, watches for deaths from now on."""
        raise NotImplementedError

    def await_writer(self):
        """Start a persistence writer if none is running. Does not wait for it."""
        raise NotImplementedError

    def _why_unwritten(self, spent: int) -> str:
        """Why ``spent`` settled messages keep their slots, as text for an error."""
        raise NotImplementedError

    def _move_dying(self, limit: int = 256):
        """Move up to ``limit`` dying messages to the dead-letter queue."""
        raise NotImplementedError

    def _wait_filtered(self, attempt: Callable[[], Any], block: bool,
                       timeout: float | None) -> Any:
        """Return what ``attempt()`` returns once that is true, or its last result at the timeout.

        ``attempt`` is called again whenever a message has arrived.
        """
        raise NotImplementedError

    def _not_confirmed(self, sequence: int, taken: int) -> Exception:
        """The error for a put that is not known to be on disk."""
        raise NotImplementedError

    # ---- attaching and detaching ----

    cdef int _reopen(self) except -1:
        if not self.open_:
            raise _closed_error(self)
        self.q.attachment = SHMQ_NIL
        self.views = self.awake[0] = self.awake[1] = self.watched[0] = self.watched[1] = 0
        self.guarded_until = 0
        self.is_consumer = False
        self._attach()
        return 0

    cdef int _attach(self) except -1:
        cdef int status
        cdef bytes comm = _process_name()
        self.number = self._process_number()
        self.generation = fork_generation
        try:
            _lock(self)
        except:
            self.generation = fork_generation - 1  # the next operation attaches
            raise
        status = shmq_attach(&self.q, self.number, _os.getpid(), comm)
        _unlock(self)
        if status != SHMQ_OK:
            self.open_ = False
            raise _error(self, status)
        return 0

    # Before each operation that leases or waits for messages: of a queue that ends by itself, the
    # handle is a consumer from now on, until it is closed.
    cdef inline int _consume(self) except -1:
        if self.is_temporary and (not self.is_consumer or self.generation != fork_generation):
            self.begin_consuming()
        return 0

    def begin_consuming(self):
        """Be a consumer from now on, until the handle is closed.

        Raises QueueDeleted, and Forbidden if the queue is exclusive to another process.
        """
        self._check_owner()
        _lock(self)
        shmq_consume(&self.q)
        _unlock(self)
        self.is_consumer = True

    def renew(self):
        """Let the time without a consumer start again."""
        _lock(self)
        shmq_renew(&self.q, shmq_now())
        _unlock(self)

    def end(self, unused: bool) -> bool:
        """Delete the queue if it is ``unused``, or else if it is empty; whether it was.

        The caller removes its files.
        """
        cdef bint ends
        _lock(self)
        ends = shmq_is_unused(&self.q, shmq_now()) if unused else not self.q.h.live
        if ends:
            self.q.h.state = SHMQ_GONE
        _unlock(self)
        return ends

    # The caller holds the lock.
    cdef void _detach(self) noexcept nogil:
        shmq_reclaim(&self.q, self.q.attachment, self.number, shmq_now())
        self.q.attachment = SHMQ_NIL

    # Wakes the handle's own waiters, too: as its sleepers share the semaphores with those of other
    # processes, all are posted.
    cdef void _leave(self) noexcept nogil:
        cdef uint32_t post[2]
        cdef int event
        if not _lock_to_end(self):
            return
        shmq_select_own(&self.q)
        _unlock(self)
        if not _lock_to_end(self):
            return
        for event in range(2):
            post[event] = 0
            if self.q.attachments[self.q.attachment].asleep[event]:
                post[event] = min(self.q.h.asleep[event], SHMQ_MAX_ATTACHMENTS)
        if self.views:
            shmq_retire(&self.q, shmq_now())
        else:
            self._detach()
        _unlock(self)
        shmq_post(self.semaphores, post)

    def close(self):
        """Detach: messages leased through the handle return at once. May be called again.

        Views stay valid; their bytes are released as the views are.
        """
        if not self.open_:
            return
        self.open_ = False
        if self.generation == fork_generation:
            with nogil:
                self._leave()

    def give_up(self):
        """Close without a look at the segment: its file was cut, and a read could end this process.

        What the handle has leased returns when the process ends.
        """
        self.open_ = False

    def leave(self):
        """Do what `close` does, but raise LockTimeout and change nothing if the lock is held."""
        cdef int status = SHMQ_OK
        if self.open_ and self.generation == fork_generation:
            with nogil:
                status = shmq_lock_even_deleted(&self.q, LEAVE_WITHIN)
                if status == SHMQ_OK:
                    _unlock(self)
        if status == SHMQ_BUSY:
            raise _locked_out(self, LEAVE_WITHIN)
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the handle was closed."""
        return not self.open_

    cdef void _unpin(self, uint32_t at, uint64_t generation) noexcept:
        if generation != fork_generation or self.generation != fork_generation:
            return  # the pin belongs to the parent
        with nogil:
            if _lock_to_end(self):
                shmq_unpin(&self.q, at)
                self.views -= 1
                if not self.views and not self.open_:
                    self._detach()
                _unlock(self)

    def processes(self) -> set[int]:
        """The numbers of the attached processes. Reads without the lock, so only a hint."""
        return self.segment.processes() if self.open_ else set()

    def attached(self) -> list[tuple[int, int, int, bytes, int, float]]:
        """The attachments: (index, process number, pid, name, leases, since)."""
        cdef shmq_attachment *a
        cdef uint32_t at
        cdef list rows = []
        if self.q.h.state == SHMQ_GONE:
            raise _error(self, SHMQ_DELETED)
        for at in range(min(self.q.h.attachments_made, SHMQ_MAX_ATTACHMENTS)):
            a = &self.q.attachments[at]
            if a.process:
                rows.append((at, a.process, a.pid, a.name[:sizeof(a.name)].split(b"\0")[0], a.leases,
                             a.since / 1e9))
        return rows

    def reclaim(self, uint32_t at, uint64_t process):
        """Return what attachment ``at`` of the dead process ``process`` holds."""
        _lock(self)
        shmq_reclaim(&self.q, at, process, shmq_now())
        shmq_post_anew(&self.q)
        _unlock(self)

    # ---- maintenance ----

    # Does the pending maintenance after an operation, once the lock is free again. This must not
    # fail an operation that succeeded: what cannot be locked now is left for later.
    cdef inline int _after(self) except -1:
        if self.q.look_for_dead or self.q.h.dying.head != SHMQ_NIL:
            self._tend()
        return 0

    cdef int _tend(self) except -1:
        if self.tending:
            return 0
        self.tending = True
        try:
            if self.q.look_for_dead:
                self.q.look_for_dead = False
                self.looked_at = _real_now()
                self._look_for_dead()
            if self.q.h.dying.head != SHMQ_NIL:
                self._move_dying()
        except _errors.LockTimeout:
            pass
        finally:
            self.tending = False
        return 0

    def tend(self):
        """Do the maintenance that is due: timers, dead processes, dying messages."""
        self._tick()

    @property
    def is_idle(self) -> bool:
        """Whether it had no message in any state, a moment ago. Takes no lock."""
        return not self.q.h.live and not shmq_looks_ready(self.q.h)

    def look_for_dead(self):
        """Do pending maintenance: dead processes, dying messages."""
        self.q.look_for_dead = True
        self._tend()

    def look_before_wait(self):
        """As `look_for_dead`, unless this handle has just done so."""
        if _real_now() - self.looked_at > WAIT_SLICE:
            self.look_for_dead()

    def spin_time(self, int event) -> float:
        """How long to spin before a wait for the event, in seconds; 0: not at all."""
        cdef int64_t ns
        with nogil:
            ns = shmq_spin_time(&self.spins[event])
        return ns / 1e9

    def learn_spin(self, int event, double seconds, double took):
        """Learn from a spin of at most ``seconds``; ``took``: until it ended the wait, or -1."""
        shmq_spin_learn(&self.spins[event], <int64_t>(seconds * 1e9), <int64_t>(took * 1e9))

    # Does all maintenance that is due, however much it is.
    cdef int _tick(self) except -1:
        cdef int64_t now
        cdef bint more = True, damaged = False
        self.q.look_for_dead = True
        self._tend()
        while more:
            _lock(self)
            now = shmq_now()
            shmq_tick(&self.q, now)
            more = shmq_next_due(&self.q) <= now
            damaged = self.q.damaged
            _unlock(self)
            if damaged:
                raise _error(self, SHMQ_DAMAGED)
            PyErr_CheckSignals()
        if self.q.h.dying.head != SHMQ_NIL and not self.tending:
            self.tending = True
            try:
                self._move_dying(1 << 31)
            except _errors.LockTimeout:
                pass
            finally:
                self.tending = False
        return 0

    def check(self):
        """Verify every invariant of the segment; raises DamagedSegment."""
        cdef const char *wrong
        _lock(self)
        wrong = shmq_check(&self.q)
        _unlock(self)
        if wrong != NULL:
            raise _errors.DamagedSegment(
                f"the segment of queue {self.name!r} is damaged: {wrong.decode()}")

    def violations(self) -> list[str]:
        """The invariants of the segment that do not hold, in words; empty if all hold."""
        cdef const char *wrong[32]
        cdef uint32_t at, count
        _lock(self)
        count = shmq_check_all(&self.q, wrong, 32)
        _unlock(self)
        return [wrong[at].decode() for at in range(count)]

    # ---- putting: see put.pxi, and handle_put.pxi, which is generated ----

    def put_many(self, bodies: Iterable[Any], block: bool | None = None,
                 timeout: float | None = None, *, confirm: str | None = None,
                 **properties: Any) -> int:
        """See shmq.api.Queue.put_many."""
        cdef PyObject *given[SHMQ_PROPERTIES]
        cdef bint confirms = _confirms(self, confirm)
        cdef int64_t until = _deadline(timeout)
        cdef uint64_t last = 0
        cdef Py_ssize_t done
        if isinstance(bodies, (str, bytes, bytearray, memoryview, dict)):
            raise TypeError(
                f"bodies={bodies!r:.60} is one body, not many: put it in a list, or use put")
        _take_given(properties, given, SHMQ_CALL_PUT_MANY, "put_many")
        prepared_puts = _wrap_many(self, bodies, given if _has_any(given) else NULL)
        done = _put_all(self, prepared_puts, block, timeout, &last)
        if confirms and done:
            _confirm(self, last, done, until)
        return done

    def put_packed(self, data, lengths: int | Iterable[int], block: bool | None = None,
                   timeout: float | None = None, *, confirm: str | None = None,
                   **properties: Any) -> Put:
        """See shmq.api.Queue.put_packed."""
        cdef PyObject *given[SHMQ_PROPERTIES]
        cdef PreparedPut prepared
        cdef Put put
        cdef bytes trailer
        cdef bint confirms = _confirms(self, confirm)
        cdef int64_t until = _deadline(timeout)
        _take_given(properties, given, SHMQ_CALL_PUT_PACKED, "put_packed")
        if _has_any(given):
            given[SHMQ_P_CODEC] = <PyObject *>_PACKED
            prepared = _wrap(self, data, given, True)
        else:
            prepared = _wrap_plainly(self, data, SHMQ_CODEC_PACKED)
        trailer = packed_trailer(prepared.c.body_bytes, lengths)
        prepared.tail = trailer
        prepared.c.tail = PyBytes_AS_STRING(trailer)
        prepared.c.tail_bytes = PyBytes_GET_SIZE(trailer)
        prepared.c.body_bytes += prepared.c.tail_bytes
        if prepared.c.body_bytes > MOST_QUICK:
            put = _put_large(self, prepared, block, timeout)
        else:
            put = _put(self, &prepared.c, block, timeout)
        if confirms:
            _confirm(self, put.sequence, 1, until)
        return put

    def wrap(self, body, *, encoded: bool = False, **properties: Any) -> PreparedPut:
        """Prepare a message for ``try_put``. Raises the errors of a put that can never succeed.

        ``encoded``: the body is bytes already encoded with its codec, as of a publish, whose dedupe
        id is ignored by a queue without a window.
        """
        cdef PyObject *given[SHMQ_PROPERTIES]
        _take_given(properties, given, SHMQ_CALL_PUT, "put")
        return _wrap_fitting(self, body, given, encoded)

    def try_put(self, PreparedPut prepared, block: bool | None = False,
                timeout: float | None = None) -> Put:
        """Put the message, or raise Full; waits only if ``block`` or ``timeout`` says so."""
        if prepared.c.body_bytes > SMALL:
            return _put_large(self, prepared, block, timeout)
        return _put(self, &prepared.c, block, timeout)

    def abandon(self, uint64_t receipt) -> bool:
        """Release reserved or staged space; whether this handle still held it."""
        cdef int status
        _lock(self)
        status = shmq_abandon(&self.q, receipt)
        _unlock(self)
        return status == SHMQ_OK

    @property
    def waits_when_full(self) -> bool:
        """Whether the queue's ``overflow`` is ``"block"``."""
        return shmq_policies_now(self.q.h).overflow == SHMQ_BLOCK

    def confirms_on_disk(self, confirm: str | None) -> bool:
        """Whether a put with this ``confirm`` must be on disk. Raises what ``put`` raises."""
        return _confirms(self, confirm)

    # ---- getting: see get.pxi ----

    def get(self, block: bool = True, timeout: float | None = None, *,
            where: str | None = None) -> api.Message:
        """See shmq.api.Queue.get."""
        cdef shmq_view view
        cdef Message message
        cdef int status, round_ = 0
        cdef int64_t until = UNKNOWN
        if timeout is not None:
            _check_timeout(timeout)
        if where is not None:
            return _get_filtered(self, _filter_of(where), block, timeout)
        self._consume()
        while True:
            # Only the whole lock may conclude that the queue is empty, or let us sleep.
            _lock_until(self, round_ > 0, SHMQ_NOT_EMPTY, block, timeout, &until)
            status = shmq_lease(&self.q, shmq_time(&self.q), True, &view)
            if status == SHMQ_EMPTY and round_ == 1:
                shmq_fall_asleep(&self.q, SHMQ_NOT_EMPTY)
            _unlock(self)
            if status == SHMQ_OK:
                message = _new_message(self, &view, None)
                self._after()
                if message is not None:
                    return message
                continue
            if status != SHMQ_EMPTY:
                raise _error(self, status)
            if not _may_wait(self, SHMQ_NOT_EMPTY, block, timeout, &until, &round_):
                _found_nothing(self)
                raise _empty(self, block, timeout)

    def get_many(self, max: int, timeout: float | None = None, *, block: bool = True,
                 where: str | None = None) -> list[api.Message]:
        """See shmq.api.Queue.get_many."""
        cdef int most = _most(self, max, timeout), got, i
        cdef list messages = []
        cdef Filter filter
        cdef shmq_view *views
        if where is not None:
            filter = _filter_of(where)
            return self._wait_filtered(lambda: self.select(filter, most), block, timeout)
        views = _new_views(most)
        try:
            while not messages:
                got = _lease_some(self, views, most, block, timeout)
                if not got:
                    break
                for i in range(got):
                    message = _new_message(self, &views[i], None)
                    if message is not None:
                        messages.append(message)
            return messages
        finally:
            free(views)

    def get_batch(self, max: int, timeout: float | None = None, *, block: bool = True) -> api.Batch:
        """See shmq.api.Queue.get_batch."""
        cdef int most = _most(self, max, timeout), got
        cdef Batch batch
        cdef shmq_view *views = _new_views(most)
        try:
            while True:
                got = _lease_some(self, views, most, block, timeout)
                batch = _new_batch(self, views, got)
                if batch.units or not got:
                    return batch
        finally:
            free(views)

    def get_packed(self, max: int = 65536, timeout: float | None = None, *,
                   block: bool = True) -> api.Packed:
        """See shmq.api.Queue.get_packed."""
        cdef int most = min(_most(self, max, timeout), MOST_PACKED), got
        cdef Packed packed
        cdef shmq_view *views = _new_views(most)
        cdef shmq_packed *read = <shmq_packed *>malloc(most * sizeof(shmq_packed))
        try:
            if read == NULL:
                raise MemoryError
            while True:
                got = _lease_some(self, views, most, block, timeout, read, min(max, 1 << 32))
                packed = _new_packed(self, views, read, got)
                if packed.units or not got:
                    return packed
        finally:
            free(views)
            free(read)

    def select(self, Filter filter not None, int most) -> list[api.Message]:
        """Lease the visible messages that match the filter, up to ``most`` of them."""
        cdef shmq_view *views = _new_views(most)
        cdef int got, i
        cdef list messages = []
        try:
            got = _select_run(self, filter, views, most, True, None)
            for i in range(got):
                message = _new_message(self, &views[i], None)
                if message is not None:
                    messages.append(message)
            if not messages:
                _found_nothing(self)
            return messages
        finally:
            free(views)

    def try_get(self) -> api.Message | None:
        """Lease the next message, or return None. Does not look for dead processes."""
        cdef shmq_view view
        cdef Message message
        cdef int status
        cdef bint whole = False
        self._consume()
        while True:
            if whole:
                _lock(self)
            else:
                _lock_gets(self)
            status = shmq_lease(&self.q, shmq_time(&self.q), True, &view)
            _unlock(self)
            if status == SHMQ_EMPTY and not whole:
                whole = True
                continue
            if status == SHMQ_EMPTY:
                _found_nothing(self)
                return None
            if status != SHMQ_OK:
                raise _error(self, status)
            message = _new_message(self, &view, None)
            self._after()
            if message is not None:
                return message

    def has_message(self) -> bool:
        """Whether a get would find a message now; does due maintenance first."""
        cdef bint found
        self._consume()
        _lock(self)
        if self.q.h.next_tick <= shmq_now():
            shmq_tick(&self.q, shmq_now())
        found = shmq_looks_ready(self.q.h)
        _unlock(self)
        self._after()
        return found

    # ---- settling ----

    def ack(self, receipt: int):
        """Acknowledge the message with this receipt."""
        _settle(self, ACK, _opened(self, receipt), 0)

    def nack(self, receipt: int, delay: float | None = None, *, counted: bool = True,
             error: BaseException | api.Failure | str | None = None):
        """See shmq.api.Queue.nack."""
        _fail(self, NACK if counted else RETURN, _opened(self, receipt), _delay_ns(delay),
              pack_error(error, counted))

    def reject(self, receipt: int, reason: BaseException | api.Failure | str | None = None):
        """See shmq.api.Queue.reject."""
        _fail(self, REJECT, _opened(self, receipt), 0, pack_error(reason))

    def extend(self, receipt: int, seconds: float):
        """See shmq.api.Queue.extend."""
        _settle(self, EXTEND, _opened(self, receipt), _span_ns("seconds", seconds))

    def ack_many(self, messages: Iterable[api.Message | int]) -> list[int]:
        """See shmq.api.Queue.ack_many."""
        cdef list items = list(messages), refused = []
        cdef int64_t now
        cdef Py_ssize_t i, count = len(items)
        cdef uint64_t *raw = <uint64_t *>malloc((count + 1) * sizeof(uint64_t))
        if raw == NULL:
            raise MemoryError
        try:
            for i in range(count):
                raw[i] = _receipt_to_ack(self, <object>PyList_GET_ITEM(items, i))
            _ack_all(self, raw, count)
            now = shmq_now()
            for i in range(count):
                item = <object>PyList_GET_ITEM(items, i)
                if raw[i]:
                    refused.append(item.receipt if type(item) is Message else plain_number(item))
                elif type(item) is Message:
                    (<Message>item)._settled = BY_ACK
                    (<Message>item).settled_at = now
        finally:
            free(raw)
        self._after()
        return refused

    # ---- options ----

    def alter(self, dict options: Mapping[str, Any], uint32_t alterations) -> bool:
        """Make these the policies among the queue's options, all of which must be given.

        Returns false, and changes nothing, if they were altered since ``alterations`` was read. Raises
        InvalidOption for a size that the queue cannot have, and NoSpace.
        """
        cdef shmq_options o
        cdef int status
        memset(&o, 0, sizeof(o))
        _pack_given(&o, options)
        _lock(self)
        status = shmq_alter(&self.q, &o.policies[0], alterations)
        _unlock(self)
        self._after()
        if status == SHMQ_TOO_LARGE or status == SHMQ_FULL:
            raise _not_resized(self, status, options)
        if status != SHMQ_OK and status != SHMQ_STALE:
            raise _error(self, status)
        return status == SHMQ_OK

    # ---- counting ----

    def purge(self) -> int:
        """See shmq.api.Queue.purge."""
        cdef uint64_t removed = 0
        cdef int status
        if self.is_temporary:
            self._check_owner()
        self._tick()
        _lock(self)
        status = shmq_purge(&self.q, &removed)
        _unlock(self)
        self._after()
        if status != SHMQ_OK:
            raise _error(self, status)
        return removed

    def qsize(self) -> int:
        """See shmq.api.Queue.qsize."""
        return self._counts()[0]

    def full(self) -> bool:
        """See shmq.api.Queue.full."""
        return self._counts()[1] >= shmq_capacity(&self.q)

    # The number of visible messages and of used slots, after all due maintenance.
    cdef tuple _counts(self):
        cdef uint32_t visible, live
        self._tick()
        _lock(self)
        visible, live = self.q.h.visible, self.q.h.live
        _unlock(self)
        return visible, live

    @property
    def last_sequence(self) -> int:
        """The newest sequence number: how many messages were ever put."""
        return self.q.h.last_seq

    @property
    def spent(self) -> int:
        """How many settled messages keep their slots until the journal records their settlement."""
        return self.q.h.spent
