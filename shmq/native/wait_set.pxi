# Those that wait in event loops, or by descriptors, for events of many queues.

# How long a poll waits for the lock of one queue, ns: the waiters of others are delayed, too.
cdef enum:
    POLL_PATIENCE = 5000000


cdef class Waiter:
    """Waits in a `TaskQueue`; ``called``: it was woken, and has not looked since."""

    cdef readonly bint called

    cdef int _renew(self) except -1:
        return 0

    cdef bint _wake(self) except -1:
        raise NotImplementedError


@cython.final
cdef class WaitingDescriptor(Waiter):
    """A descriptor that ``on_call`` makes readable, from any thread."""

    cdef object on_call

    def __cinit__(self, on_call: Callable[[], object]):
        self.on_call = on_call

    cdef bint _wake(self) except -1:
        self.on_call()
        return True


@cython.final
cdef class WaitingTask(Waiter):
    """One waiting task."""

    #| loop: AbstractEventLoop
    cdef readonly object loop
    #| future: Future[None]
    cdef readonly object future
    #: Whether its timeout has passed.
    cdef readonly bint expired
    cdef long thread

    def __cinit__(self, loop: AbstractEventLoop):
        self.loop = loop
        self.future = loop.create_future()
        self.thread = PyThread_get_thread_ident()

    cdef int _renew(self) except -1:
        if self.future.done():
            self.future = self.loop.create_future()
        return 0

    # False if the loop is closed. From any thread.
    cdef bint _wake(self) except -1:
        try:
            if PyThread_get_thread_ident() == self.thread:
                _resolve(self.future)
            else:
                self.loop.call_soon_threadsafe(_resolve, self.future)
        except RuntimeError:
            return False
        return True

    def expire(self):
        """End the wait at its timeout. Must be called in the task's loop."""
        self.expired = True
        _resolve(self.future)


def _resolve(future):
    if not future.done():
        future.set_result(None)


@cython.final
cdef class TaskQueue:
    """Waiting tasks of an event loop, or descriptors, first come, first served.

    Each wakeup calls one task. As long as some tasks were not called, either the queue is armed, or
    a called task has not left yet: a task that leaves after a call calls the next one, if there is
    something for it, or arms the queue. The last task disarms the queue, which wakes another
    waiter for what is left. So every wakeup is used or passed on. A task keeps its place until it
    leaves.

    Tasks that wait for arriving messages with a filter are all called at each wakeup: one of them
    may match what another leaves. Descriptors wait so, too: it is open whether a message is taken
    after one became readable.
    """

    cdef readonly Watch watch
    cdef bint all_
    cdef dict waiters
    cdef Py_ssize_t called
    cdef object lock

    def __cinit__(self, Handle queue, int event, Wakeup wakeup not None, lock: RLock):
        """``lock`` is held during each call."""
        self.watch = Watch(queue, event, wakeup)
        self.all_ = event == EVENT_ARRIVED
        self.waiters = {}
        self.lock = lock

    def join(self, Waiter waiter not None):
        """Append it."""
        self.waiters[waiter] = None

    def arm(self, Waiter waiter not None) -> float:
        """Arm the queue: an event after the next attempt will wake the waiter.

        Returns when something is due in the queue, on time.monotonic(). If all are called at each
        event, one that came before this is not seen any more, so the others are called here.
        Raises what an operation on the queue raises.
        """
        cdef list others = []
        with self.lock:
            self._clear_called(waiter)
            waiter._renew()
            if not self.watch._is_armed():
                self.watch.arm()
                if self.all_:
                    others = self._call_some(len(self.waiters), waiter)
        self._wake(others)
        return self.watch.w.due / 1e9

    #| def leave(self, waiter: Waiter, served: bool) -> None: ...
    cpdef leave(self, Waiter waiter, bint served):
        """Remove the waiter, ``served`` or not. May be called again."""
        cdef bint was_called
        with self.lock:
            if waiter not in self.waiters:
                return
            del self.waiters[waiter]
            was_called = self._clear_called(waiter)
            if not self.waiters:
                self.watch.disarm()
                return
            next_ = self._choose_next() if was_called or served else []
        self._wake(next_)

    # Calls those to be woken now that the event may have come: unless `closely`, none while a called
    # one has not answered.
    cdef int _call(self, bint closely) except -1:
        cdef list called = []
        with self.lock:
            if self.all_ or self.watch._has_ended():
                called = self._call_some(len(self.waiters), None)
            elif closely or not self.called:
                called = self._call_some(1, None)
        return self._wake(called)

    # A task whose loop is closed leaves.
    cdef int _wake(self, list called) except -1:
        cdef Waiter waiter
        for waiter in called:
            if not waiter._wake():
                self.leave(waiter, False)
        return 0

    cdef list _choose_next(self):
        if self.all_ or self.called == len(self.waiters):
            return []
        try:
            if not self.watch.stirs():
                if not self.watch._is_armed():
                    self.watch.arm()
                if not self.watch.stirs():
                    return []
        except _errors.ShmqError:
            return self._call_some(len(self.waiters), None)  # each gets the error by its attempt
        return self._call_some(1, None)

    cdef list _call_some(self, Py_ssize_t count, Waiter other_than):
        cdef list called = []
        cdef Waiter waiter
        for waiter in self.waiters:
            if len(called) == count:
                break
            if not waiter.called and waiter is not other_than:
                waiter.called = True
                called.append(waiter)
        self.called += len(called)
        return called

    cdef bint _clear_called(self, Waiter waiter) noexcept:
        cdef bint was_called = waiter.called
        waiter.called = False
        self.called -= was_called
        return was_called


cdef class WaitSet:
    """Watches queues on one wakeup, for some waiters of this process.

    It keeps a `TaskQueue` as long as one of them waits in it.
    """

    cdef readonly Watcher watcher
    #: Held by each of its methods. A task that the garbage collector ends leaves in whatever thread
    #: runs the collector.
    #| lock: RLock
    cdef readonly object lock
    cdef dict task_queues          # by the id of the handle, and the event
    cdef dict watched              # by their watches; None: they have changed

    def __cinit__(self, Wakeup wakeup not None, lock: RLock):
        self.watcher = Watcher(wakeup)
        self.lock = lock
        self.task_queues = {}

    @property
    def is_idle(self) -> bool:
        """Whether none waits."""
        return not self.task_queues

    def join(self, Handle queue not None, int event, Waiter waiter not None) -> TaskQueue:
        """Add it to its queue of waiters."""
        cdef TaskQueue tasks
        key = (id(queue), event)
        with self.lock:
            tasks = self.task_queues.get(key)
            if tasks is None:
                tasks = TaskQueue(queue, event, self.watcher.wakeup, self.lock)
                self.task_queues[key] = tasks
                self.watched = None
            tasks.waiters[waiter] = None
        return tasks

    #| def leave(self, tasks: TaskQueue, waiter: Waiter, served: bool) -> None: ...
    cpdef leave(self, TaskQueue tasks, Waiter waiter, bint served):
        """Remove it from its queue of waiters, ``served`` or not."""
        with self.lock:
            tasks.leave(waiter, served)
            if tasks.waiters:
                if tasks.watch.w.due / 1e9 < self.watcher.until:
                    self.wake()  # the next one may have armed it
                return
            key = (id(tasks.watch.queue), tasks.watch.event)
            if self.task_queues.get(key) is tasks:
                del self.task_queues[key]
                self.watched = None

    def leave_all(self):
        """Remove all: their loop is closed."""
        cdef TaskQueue tasks
        for tasks in list(self.task_queues.values()):
            for waiter in list(tasks.waiters):
                self.leave(tasks, waiter, False)

    def wake(self):
        """Have it poll."""
        shmq_post_wakeup(self.watcher.wakeup.fd)

    def poll(self):
        """Wake the waiters whose event may have come."""
        cdef dict watched
        cdef Watch watch
        shmq_limit_patience(POLL_PATIENCE)
        try:
            with self.lock:
                if self.watched is None:
                    self.watched = {(<TaskQueue>tasks).watch: tasks
                                    for tasks in self.task_queues.values()}
                watched = self.watched
            for watch in self.watcher.look(list(watched)):
                (<TaskQueue>watched[watch])._call(self.watcher.closely)
        finally:
            shmq_limit_patience(0)
