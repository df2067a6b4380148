# Waiting: the spin before a sleep, wakeup semaphores, and the watches of queues that arm them.

# How long a wait spins before it sleeps: as long as spinning has paid lately.
#
# A spin lasts twice as long as the last wait that a spin ended, and at least `least`. If no spin
# ended a wait lately, a long one is tried now and then, more and more seldom while it fails: on a
# busy machine or a single core no other process can make progress while this one spins.

cdef bint _alone = (_os.cpu_count() or 1) == 1

cdef struct Spin:
    int64_t least        # the shortest spin after one that has paid, ns
    int64_t ns           # the length of the next spin; 0: none
    int until_try        # waits until a long spin is tried again
    int between          # waits from that spin to the next long one


cdef inline void _spin_init(Spin *spin, int64_t least) noexcept:
    spin.least = least
    spin.ns = FIRST_SPIN
    spin.until_try = 0
    spin.between = LEAST_BETWEEN


# How long to spin now, in ns; 0 means not at all.
cdef inline int64_t _spin_time(Spin *spin) noexcept:
    if _alone:
        return 0
    if spin.ns:
        return spin.ns
    spin.until_try -= 1
    return 0 if spin.until_try > 0 else MOST_SPIN


# Learns from a spin of at most `tried` ns that ended after `took` ns, or failed (-1).
cdef inline void _spin_learn(Spin *spin, int64_t tried, int64_t took) noexcept nogil:
    if took >= 0:
        spin.ns = min(max(took * 2, spin.least), MOST_SPIN)
        spin.between = LEAST_BETWEEN
        return
    spin.ns = tried // 2 if tried // 2 >= LEAST_SPIN and spin.ns else 0
    if not spin.ns:
        spin.until_try = spin.between
        spin.between = min(spin.between * 2, MOST_BETWEEN)


# Receives what arrives within `ns`, otherwise like a non-blocking recv(2).
cdef ssize_t _spin_recv(int fd, void *to, size_t room, Spin *spin, int64_t ns,
                        int *why) noexcept nogil:
    cdef int64_t begin = shmq_read_clock(CLOCK_MONOTONIC), took = 0
    cdef ssize_t got = -1
    why[0] = EAGAIN
    while took < ns:
        got = recv(fd, to, room, MSG_DONTWAIT)
        why[0] = errno
        if got >= 0 or why[0] != EAGAIN:
            break
        sched_yield()  # let the peer run if it shares this core
        took = shmq_read_clock(CLOCK_MONOTONIC) - begin
    _spin_learn(spin, ns, took if got > 0 else -1)
    return got


EVENT_NOT_EMPTY = SHMQ_NOT_EMPTY
EVENT_NOT_FULL = SHMQ_NOT_FULL
EVENT_ARRIVED = 2
SLICE = WAIT_SLICE / 1e9


def check_timeout(timeout: float | None):
    """Raise TypeError or InvalidOption unless it is None or a number of seconds >= 0."""
    _check_timeout(timeout)


@cython.final
cdef class Wakeup:
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

    def wake(self):
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


@cython.final
cdef class Watch:
    """One event of one queue, watched by the owner of a wakeup semaphore."""

    #| queue: Any
    cdef readonly Handle queue
    #| wakeup: Wakeup | None
    cdef readonly Wakeup wakeup
    cdef shmq_watch w
    cdef uint64_t generation
    cdef bint begun                # armed, and not ended by disarm

    def __cinit__(self, Handle queue, int event, Wakeup wakeup: Wakeup | None):
        """``event`` is one of EVENT_…; ``wakeup`` is the wakeup semaphore, or None.

        EVENT_ARRIVED is for callers that take only some messages: it comes with each message
        that becomes visible from now on.
        """
        self.queue = queue
        self.wakeup = wakeup
        self.w.filtered = event == EVENT_ARRIVED
        self.w.event = SHMQ_NOT_EMPTY if self.w.filtered else event
        self.w.n = 0 if wakeup is None else wakeup.number
        self.w.party = SHMQ_NIL
        self.w.seen = LONG_AGO
        self.generation = fork_generation
        self.begun = False

    def arm(self):
        """Ask to be woken when the event comes; it may have come before.

        If the queue has no free entry, or there is no wakeup semaphore, no wakeup comes.
        """
        self.queue._lock()
        if self.wakeup is not None:
            shmq_arm(&self.queue.q, &self.w, self.wakeup.process)
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
