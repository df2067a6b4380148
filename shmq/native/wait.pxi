# Waiting: the spin before a sleep, wakeups, and the watches of queues that arm them.

# Receives what arrives within `ns`, otherwise like a non-blocking recv(2).
cdef ssize_t _spin_recv(int fd, void *to, size_t room, shmq_spin_rate *rate, int64_t ns,
                        int *why) noexcept nogil:
    cdef int64_t begin = shmq_read_clock(CLOCK_MONOTONIC), took = 0
    cdef ssize_t got = -1
    why[0] = EAGAIN
    while took < ns:
        sched_yield()  # let the peer run if it shares this core: nothing comes before that
        got = c_recv(fd, to, room, MSG_DONTWAIT)
        why[0] = errno
        if got >= 0 or why[0] != EAGAIN:
            break
        took = shmq_read_clock(CLOCK_MONOTONIC) - begin
    shmq_spin_learn(rate, ns, took if got > 0 else -1)
    return got


def is_over(int fd) -> bool:
    """Whether a connected socket was reset, or has ended in both directions: nothing more arrives.

    uvloop tells of a reset once, maybe together with bytes that came before it. What these leave
    unread must be read without another event.
    """
    cdef pollfd poller
    poller.fd = fd
    poller.events = poller.revents = 0
    c_poll(&poller, 1, 0)
    return (poller.revents & (POLLERR | POLLHUP)) != 0


EVENT_NOT_EMPTY = SHMQ_NOT_EMPTY
EVENT_NOT_FULL = SHMQ_NOT_FULL
EVENT_ARRIVED = 2
VERY_LONG = 3600.0
SLICE = SHMQ_SHORT_SLEEP / 1e9
LONG_SLICE = SHMQ_LONG_SLEEP / 1e9


def check_timeout(timeout: float | None) -> float | None:
    """Return it as an int or float. Raises TypeError or InvalidOption unless it is None or >= 0."""
    return _check_timeout(timeout)


@cython.final
cdef class Wakeup:
    """A FIFO of this process; one loop or thread waits on it, any process may post it."""

    cdef int fd
    cdef readonly str name
    cdef readonly uint64_t process
    cdef readonly uint32_t number

    def __cinit__(self, str name, uint64_t process, uint32_t number):
        """``name`` is the path of an existing FIFO, derived from the two numbers."""
        raw = name.encode()
        self.name = name
        self.process = process
        self.number = number
        self.fd = shmq_open_wakeup(raw)
        if self.fd < 0:
            raise _errors.no_descriptor(OSError(errno, _os.strerror(errno), name))

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    def fileno(self) -> int:
        """The descriptor that is readable from a post until `clear`."""
        return self.fd

    def wake(self):
        """Post it."""
        shmq_post_wakeup(self.fd)

    def clear(self) -> bool:
        """Take all posts; whether there were any."""
        return shmq_clear_wakeup(self.fd)

    def sleep(self, double seconds) -> bool:
        """Sleep until a post, for at most ``seconds``; whether there was one.

        Several posts count as one. A signal ends the sleep, too.
        """
        cdef int64_t ns = <int64_t>(min(max(seconds, 0.0), 3600.0) * 1e9)
        with nogil:
            shmq_await_wakeup(self.fd, ns)
        return shmq_clear_wakeup(self.fd)


@cython.final
cdef class FileWatch:
    """Waits until the kernel reports something of a file or a folder.

    Of a file: that a process closed it which had it open for writing, as its end does. The kernel
    releases the record locks that the process has on it before. Of a folder: that a file was
    created or removed in it.
    """

    cdef int fd, woken_fd

    def __cinit__(self, bytes path not None):
        """Watch that path. Raises OSError: the user has no watch left, or no descriptor."""
        self.woken_fd = -1
        shmq_reserve_standard()
        self.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)
        if self.fd >= 0:
            self.woken_fd = c_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        what = IN_CREATE | IN_DELETE | IN_MOVED_TO if _os.path.isdir(path) else IN_CLOSE_WRITE
        if self.woken_fd < 0 or inotify_add_watch(self.fd, path, what) < 0:
            raise OSError(errno, _os.strerror(errno), _os.fsdecode(path))

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)
        if self.woken_fd >= 0:
            close(self.woken_fd)

    def wait(self, double seconds) -> bool:
        """Wait for at most ``seconds``; whether there was something since the last call."""
        cdef pollfd fds[2]
        cdef char events[4096]
        cdef int ms = <int>(min(max(seconds, 0.0), 3600.0) * 1000) + 1
        cdef bint came = False
        fds[0].fd = self.fd
        fds[1].fd = self.woken_fd
        fds[0].events = fds[1].events = POLLIN
        with nogil:
            c_poll(fds, 2, ms)
            while read(self.fd, events, sizeof(events)) > 0:
                came = True
            read(self.woken_fd, events, 8)
        PyErr_CheckSignals()
        return came

    def wake(self):
        """End the current wait, or the next one. For any thread, and for signal handlers."""
        cdef uint64_t one = 1
        with nogil:
            write(self.woken_fd, &one, sizeof(one))


@cython.final
cdef class Watch:
    """One event of one queue, watched by the owner of a wakeup."""

    #| queue: Any
    cdef readonly Handle queue
    #| wakeup: Wakeup | None
    cdef readonly Wakeup wakeup
    cdef shmq_watch w
    cdef uint64_t generation
    cdef bint begun                # armed, and not ended by disarm

    def __cinit__(self, Handle queue, int event, Wakeup wakeup: Wakeup | None):
        """``event`` is one of EVENT_…; ``wakeup`` may be None.

        EVENT_ARRIVED is for callers that take only some messages: it comes with each message
        that becomes visible from now on.
        """
        self.queue = queue
        self.wakeup = wakeup
        self.w.filtered = event == EVENT_ARRIVED
        self.w.event = SHMQ_NOT_EMPTY if self.w.filtered else event
        self.w.n = 0 if wakeup is None else wakeup.number
        self.w.party = SHMQ_NIL
        self.generation = fork_generation
        self.begun = False

    #| def arm(self) -> None: ...
    cpdef arm(self):
        """Ask to be woken when the event comes; it may have come before.

        If the queue has no free entry, or the watch has no wakeup, nothing wakes the caller.
        """
        _lock(self.queue)
        if self.wakeup is not None:
            shmq_arm(&self.queue.q, &self.w, self.wakeup.process)
            self.begun = True
        shmq_watch_time(&self.queue.q, &self.w, shmq_now())
        _unlock(self.queue)
        self.queue._after()

    #| def disarm(self) -> None: ...
    cpdef disarm(self):
        """Ask not to be woken any more: for a caller that stops waiting, successful or not.

        If it was woken and something is left, another waiter is woken, because the wakeup may
        have stood for more than the caller took. Does nothing if the handle was closed.
        """
        if not self.begun or self.generation != fork_generation or not self.queue.open_:
            return
        self.begun = False
        with nogil:
            if _lock_to_end(self.queue):
                shmq_disarm(&self.queue.q, &self.w)
                _unlock(self.queue)

    cdef bint _is_armed(self):
        return (self.w.party != SHMQ_NIL
                and (shmq_armed(self.queue.q.h, self.w.event) >> self.w.party) & 1)

    @property
    def event(self) -> int:
        """EVENT_NOT_EMPTY, EVENT_NOT_FULL or EVENT_ARRIVED."""
        return EVENT_ARRIVED if self.w.filtered else self.w.event

    #| def stirs(self) -> bool: ...
    cpdef bint stirs(self):
        """Whether the event may have come: it was woken, or the counters or the end suggest it."""
        return not self.queue.open_ or shmq_is_woken(&self.queue.q, &self.w, True)

    @property
    def due(self) -> float:
        """When maintenance is due in the queue, as last seen: monotonic seconds."""
        return self.w.due / 1e9

    cdef bint _has_ended(self):
        return not self.queue.open_ or self.queue.q.h.state != 0

    @property
    def has_ended(self) -> bool:
        """Whether the queue was deleted, or the handle closed."""
        return self._has_ended()

    @property
    def is_armed(self) -> bool:
        """Whether the next process that makes something available will wake it."""
        return self._is_armed()

    #| def catch_up(self) -> None: ...
    cpdef catch_up(self):
        """Do due maintenance in the queue, and learn when more will be due."""
        _lock(self.queue)
        shmq_watch_time(&self.queue.q, &self.w, shmq_now())
        _unlock(self.queue)
        self.queue._after()


# Looks at each watch without a lock: adds those that stir, and those due, and returns when more will
# be, monotonic ns. A watch stirs if its event may have come: it was woken, or the queue has ended;
# with `closely` also if the queue's counters suggest it. The caller does due maintenance with
# `catch_up`; with `closely` all the others are due. A watch that no process wakes is to be scanned
# after SLICE, the others at `latest`.
cdef int64_t _scan(list watches, bint closely, int64_t latest, list stirring, list due) except -1:
    cdef int64_t now = shmq_now(), earliest = latest, at
    cdef Watch watch
    for watch in watches:
        at = watch.w.due
        if (not watch.queue.open_
                or shmq_is_woken(&watch.queue.q, &watch.w, closely or at <= now)):
            stirring.append(watch)
            continue
        if watch.w.party == SHMQ_NIL and at > now + SHMQ_SHORT_SLEEP:
            at = now + SHMQ_SHORT_SLEEP
        if closely or at <= now:
            due.append(watch)
        elif at < earliest:
            earliest = at
    return earliest


@cython.final
cdef class Watcher:
    """Sleeps on a wakeup, and tells in which of the watched queues an event may have come.

    An event wakes it. In addition, it checks every queue, and which processes are alive, once in
    each slice: so the work that a dead process left is late by at most a slice. After the first
    one, slices are long as long as a process watches for deaths. It is also the timer of its
    queues: when something in one of them becomes due, it does it.
    """

    cdef readonly Wakeup wakeup
    #: When the next look is due, on time.monotonic(); inf: the owner is awake, or idle.
    cdef public double until
    #: Whether the last check was of every queue.
    cdef readonly bint closely
    #: How long to sleep until the next look, as of the last one, in seconds.
    cdef readonly double pause
    cdef int64_t closely_at
    cdef bint has_slept

    def __cinit__(self, Wakeup wakeup not None):
        self.wakeup = wakeup
        self.until = INFINITY

    def sleep(self, double at_most, *, bint idle=False):
        """Sleep until an event may have come, something is due, or the slice ends.

        ``idle``: nothing is watched, so it sleeps until it is woken.
        """
        cdef double pause = VERY_LONG if idle else min(self.pause, at_most)
        self.until = _real_now() / 1e9 + pause
        self.wakeup.sleep(pause)
        self.until = INFINITY

    #| def look(self, watches: list[Watch]) -> list[Watch]: ...
    cpdef list look(self, list watches):
        """The watches whose event may have come; does what is due in their queues."""
        cdef list stirring = [], due = []
        cdef int64_t now = _real_now()
        cdef Watch watch
        self.closely = now >= self.closely_at
        if self.closely:
            self.closely_at = now + self._compute_slice(watches)
            asked = {}
            for watch in watches:
                watch.queue.notice_deaths(asked)
        self.pause = (_scan(watches, self.closely, shmq_now() + self.closely_at - now, stirring, due)
                      - shmq_now()) / 1e9
        for watch in due:
            try:
                watch.catch_up()
                self.pause = 0.0
            except _errors.LockTimeout:
                continue  # it is still due
            except (_errors.ShmqError, OSError):
                stirring.append(watch)  # the waiter gets the error
        return stirring

    # How long to sleep until the next check of everything.
    cdef int64_t _compute_slice(self, list watches) except -1:
        cdef bint has_slept = self.has_slept
        self.has_slept = bool(watches)
        if has_slept and watches and (<Watch>watches[0]).queue.is_guarded():
            return SHMQ_LONG_SLEEP
        return SHMQ_SHORT_SLEEP
