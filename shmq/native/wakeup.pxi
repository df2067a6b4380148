# Waiting for events of several queues: wakeup semaphores, and the watches that arm them.

EVENT_NOT_EMPTY = SHMQ_NOT_EMPTY
EVENT_NOT_FULL = SHMQ_NOT_FULL
EVENT_ARRIVED = 2
SLICE = WAIT_SLICE / 1e9


def check_timeout(timeout: float | None):
    """Raise TypeError or InvalidOption unless it is None or a number of seconds >= 0."""
    _check_timeout(timeout)


@cython.final
cdef class Bell:
    """A wakeup semaphore of this process; one thread sleeps on it, any process may wake it."""

    cdef sem_t *semaphore
    cdef readonly str name
    cdef readonly uint64_t process
    cdef readonly uint32_t number

    def __cinit__(self, str name, uint64_t process, uint32_t number):
        """``name`` is the name of an existing semaphore, derived from the two numbers."""
        raw = name.encode()
        self.name = name
        self.process = process
        self.number = number
        self.semaphore = sem_open(raw, 0)
        if self.semaphore == SEM_FAILED:
            self.semaphore = NULL
            raise _errors.no_descriptor(OSError(
                errno, f"cannot open the semaphore: {_os.strerror(errno)}", name))

    def __dealloc__(self):
        if self.semaphore != NULL:
            sem_close(self.semaphore)

    def ring(self):
        """Wake the thread that sleeps on it."""
        shmq_post_wakeup(self.semaphore)

    def sleep(self, double seconds) -> bool:
        """Sleep until a wakeup, for at most ``seconds``; whether there was one.

        Several wakeups count as one. A signal ends the sleep, too.
        """
        cdef int status
        cdef int64_t ns = <int64_t>(min(max(seconds, 0.0), 3600.0) * 1e9)
        with nogil:
            status = shmq_sleep(self.semaphore, ns)
            while sem_trywait(self.semaphore) == 0:
                status = SHMQ_OK
        return status == SHMQ_OK


@cython.no_gc_clear
cdef class _Watcher(_Getter):
    """The part of a handle that watches use."""

    def has_message(self) -> bool:
        """Whether a get would find a message now; does due maintenance first."""
        cdef bint found
        self._lock()
        if self.q.h.next_tick <= shmq_now():
            shmq_tick(&self.q, shmq_now())
        found = shmq_looks_ready(self.q.h)
        self._unlock()
        self._after()
        return found

    def try_get(self) -> api.Message | None:
        """Lease the next message, or return None. Does not look for dead processes."""
        cdef shmq_view view
        cdef Message message
        cdef int status
        cdef bint whole = False
        while True:
            if whole:
                self._lock()
            else:
                self._lock_gets()
            status = shmq_lease(&self.q, shmq_time(&self.q), True, &view)
            self._unlock()
            if status == SHMQ_EMPTY and not whole:
                whole = True
                continue
            if status == SHMQ_EMPTY:
                return None
            if status != SHMQ_OK:
                raise self._error(status)
            message = _new_message(self, &view, None)
            self._after()
            if message is not None:
                return message

    def wrap(self, body, *, priority: int | None = None, group: str | None = None,
             headers: Mapping[str, Any] | None = None, delay: float | None = None,
             deliver_at: float | None = None, ttl: float | None = None,
             dedupe_id: str | None = None, codec: str | None = None, reply_to: str | None = None,
             correlation: str | None = None, encoded: bool = False) -> PreparedPut:
        """Prepare a message for ``try_put``. Raises the errors of a put that can never succeed.

        ``encoded``: the body is bytes already encoded with its codec.
        """
        cdef PreparedPut prepared = self._wrap(body, codec, priority, group, headers, delay, deliver_at,
                                        ttl, dedupe_id, reply_to, correlation, encoded)
        if shmq_fits(&self.q, prepared.c.body_bytes, prepared.c.meta_bytes) != SHMQ_OK:
            raise self._too_large(prepared.c.body_bytes, prepared.c.meta_bytes)
        return prepared

    def try_put(self, PreparedPut prepared, block: bool | None = False,
                timeout: float | None = None) -> Put:
        """Put the message, or raise Full; waits only if ``block`` or ``timeout`` says so."""
        if prepared.c.body_bytes > SMALL:
            return self._put_large(prepared, block, timeout)
        return self._put(&prepared.c, block, timeout)

    @property
    def waits_when_full(self) -> bool:
        """Whether the queue's ``overflow`` is ``"block"``."""
        return self.blocks

    def look_for_dead(self):
        """Do pending maintenance: dead processes, dying messages."""
        self.q.look_for_dead = True
        self._tend()

    def processes(self) -> set[int]:
        """The numbers of the attached processes. Reads without the lock, so only a hint."""
        cdef uint32_t at, made = min(self.q.h.attachments_made, SHMQ_MAX_ATTACHMENTS)
        cdef set numbers = set()
        if self.open_:
            for at in range(made):
                if self.q.attachments[at].process:
                    numbers.add(self.q.attachments[at].process)
        return numbers


@cython.final
cdef class Watch:
    """One event of one queue, watched by the owner of a wakeup semaphore."""

    #| queue: Any
    cdef readonly _Watcher queue
    #| bell: Bell | None
    cdef readonly Bell bell
    cdef shmq_watch w
    cdef uint64_t generation
    cdef bint begun                # armed, and not ended by disarm

    def __cinit__(self, _Watcher queue: Handle, int event, Bell bell: Bell | None):
        """``event`` is one of EVENT_…; ``bell`` is the wakeup semaphore, or None.

        EVENT_ARRIVED is for callers that take only some messages: it comes with each message
        that becomes visible from now on.
        """
        self.queue = queue
        self.bell = bell
        self.w.filtered = event == EVENT_ARRIVED
        self.w.event = SHMQ_NOT_EMPTY if self.w.filtered else event
        self.w.n = 0 if bell is None else bell.number
        self.w.party = SHMQ_NIL
        self.w.seen = LONG_AGO
        self.generation = fork_generation
        self.begun = False

    def arm(self):
        """Ask to be woken when the event comes; it may have come before.

        If the queue has no free entry, or there is no wakeup semaphore, no wakeup comes.
        """
        self.queue._lock()
        if self.bell is not None:
            shmq_arm(&self.queue.q, &self.w, self.bell.process)
            self.begun = True
        shmq_watch_time(&self.queue.q, &self.w, shmq_now())
        self.queue._unlock()
        self.queue._after()

    def disarm(self):
        """Ask not to be woken any more: for a caller that stops waiting, successful or not.

        If it was woken and something is left, another waiter is woken, because the wakeup may
        have stood for more than the caller took. Does nothing if the handle was closed.
        """
        if not self.begun or self.generation != fork_generation or not self.queue.open_:
            return
        self.begun = False
        with nogil:
            if self.queue._lock_to_end():
                shmq_disarm(&self.queue.q, &self.w)
                self.queue._unlock()

    cdef bint _is_armed(self):
        return (self.w.party != SHMQ_NIL
                and (shmq_armed(self.queue.q.h, self.w.event) >> self.w.party) & 1)

    @property
    def event(self) -> int:
        """EVENT_NOT_EMPTY, EVENT_NOT_FULL or EVENT_ARRIVED."""
        return EVENT_ARRIVED if self.w.filtered else self.w.event

    @property
    def due(self) -> float:
        """When maintenance is due in the queue, as last seen: monotonic seconds."""
        return self.w.due / 1e9

    @property
    def has_ended(self) -> bool:
        """Whether the queue was deleted, or the handle closed."""
        return not self.queue.open_ or self.queue.q.h.state != 0

    @property
    def is_armed(self) -> bool:
        """Whether the next process that makes something available will wake it."""
        return self._is_armed()

    def catch_up(self):
        """Do due maintenance in the queue, and learn when more will be due."""
        self.queue._lock()
        shmq_watch_time(&self.queue.q, &self.w, shmq_now())
        self.queue._unlock()
        self.queue._after()


def scan(list watches: list[Watch], bint closely) -> tuple[list[Watch], list[Watch], float]:
    """Look at each watch without a lock: (those that stir, those due, seconds until more are).

    A watch stirs if its event may have come: it was woken, or the queue has ended; with
    ``closely`` also if the queue's counters suggest it. The caller does due maintenance with
    ``catch_up``.
    """
    cdef list stirring = [], due = []
    cdef int64_t now = shmq_now(), earliest = now + WAIT_SLICE, at
    cdef Watch watch
    for watch in watches:
        if not watch.queue.open_ or shmq_is_woken(&watch.queue.q, &watch.w, closely):
            stirring.append(watch)
            continue
        at = shmq_watch_due(&watch.queue.q, &watch.w)
        if at <= now:
            due.append(watch)
        elif at < earliest:
            earliest = at
    return stirring, due, (earliest - now) / 1e9
