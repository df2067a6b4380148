# The server's side of the wire protocol: see shmq/core/server/server.h. Everything but the I/O of
# Session is C.


@cython.no_gc_clear
cdef class Engine:
    """All connections of a process, and the queues that it has attached to for them.

    ``control`` provides the policy. A `name` below is a well-formed queue name.

    ``attach(name)``
        returns a `Handle` of the queue, or None if it will call `Engine.attached` later. Raises
        NoSuchQueue, NoSpace, LockTimeout.
    ``detach(queue)``
        closes such a handle as soon as possible.
    ``rights(session, name)``
        returns PRODUCE_RIGHT and so on; 0: the session may not know of the queue.
    ``answer(session, kind, name, rest)``
        carries out a HELLO, CREATE, DELETE, PURGE, LIST, STATS, PEEK or REDRIVE; `rest` is
        the payload behind the name. Returns the status and the payload of the REPLY; for a
        PEEK that found messages, OK and the list of copies; None for the payload if
        `Session.answer_late`, `Session.keep` or, after `Session.park`, `Session.unpark` will
        give it.
    ``compile(where)``
        returns the `Filter` of a client's expression. Raises InvalidOption.
    ``wait(queue)``
        is told that a session waits: from now on it calls `serve` whenever a message may have
        come.
    ``wait_filtered(queue)``
        is told that a session waits with a filter: from now on it calls `serve_filtered`
        whenever a message has arrived.
    ``on_output_pending(session)``
        is told that the session has output or must be closed, as its ``flags`` say.
    ``confirm(queue)``
        is told that a session waits for the queue's journal: it calls `Engine.confirmed`
        whenever the journal has progressed, until that returns false.
    ``sooner()``
        is told to call `tick` earlier than its last result said.
    ``failed(error)``
        logs an exception that one of these has raised, or why a queue could not be used.
    """

    cdef shmq_engine c
    cdef readonly object control
    cdef Session last            # the session that was read from last, if no other was since
    cdef int in_a_row            # how many times in a row
    cdef Spin spin
    cdef dict attached_queues              # by the id of its handle: the address of the attached queue
    cdef dict attaching          # by the name of a queue: the sessions waiting for its attach
    cdef dict found              # by the name of a queue: the handle for those sessions
    cdef int64_t told            # the time of the next tick, as `tick` last returned it
    cdef bint open_

    def __cinit__(self, control, **limits):
        """``limits``: the arguments of `set_limits`."""
        self.control = control
        self.attached_queues = {}
        self.attaching = {}
        self.found = {}
        self.open_ = False
        _spin_init(&self.spin, LEAST_SPIN_OF_RECV)
        cdef shmq_limits c
        memset(&c, 0, sizeof(c))
        if not shmq_engine_begin(&self.c, &_hooks, <void *>self, &c):
            raise MemoryError
        self.open_ = True
        self.set_limits(**limits)

    def __dealloc__(self):
        if self.open_:
            shmq_engine_end(&self.c)

    def set_limits(self, *, uint32_t max_frame=16 << 20, bint token_required=False,
                   uint32_t most_unsettled=65536, uint64_t most_unsettled_bytes=256 << 20,
                   double handshake=5.0, double frame_time=30.0, double idle=300.0):
        """Set the limits of connections; times in seconds. 0 means no limit, except for max_frame.

        ``max_frame``: the longest payload of a request, in bytes. ``token_required`` applies to
        connections that begin after this call.
        """
        self.c.limits.max_frame = max_frame
        self.c.limits.token_required = token_required
        self.c.limits.unsettled = most_unsettled
        self.c.limits.unsettled_bytes = most_unsettled_bytes
        self.c.limits.handshake = <int64_t>(handshake * 1e9)
        self.c.limits.frame = <int64_t>(frame_time * 1e9)
        self.c.limits.idle = <int64_t>(idle * 1e9)

    @property
    def max_frame(self) -> int:
        """The maximum payload of a request, in bytes."""
        return self.c.limits.max_frame

    @property
    def sessions(self) -> int:
        """How many connections there are."""
        return self.c.session_count

    def session(self, context=None) -> Session:
        """Make a session for a new connection; ``context`` is the control's."""
        return Session(self, context)

    # Finishes the changed queues and sessions, then tells the control which sessions have output.
    cdef int _settle(self) except -1:
        cdef shmq_session *output_pending
        cdef int64_t due
        while True:
            shmq_engine_settle(&self.c)
            output_pending = shmq_engine_next_pending(&self.c)
            if output_pending == NULL:
                break
            self.control.on_output_pending(<object>output_pending.data)
        due = min(self.c.expire_at, self.c.retry_at)
        if due < self.told:
            self.told = due
            self.control.sooner()
        return 0

    cdef shmq_attached_queue *_attached_queue_of(self, queue) except? NULL:
        return <shmq_attached_queue *><size_t>self.attached_queues.get(id(queue), 0)

    def serve(self, queue: Handle) -> bool:
        """Deliver messages of the queue to waiting sessions; whether any session still waits."""
        cdef shmq_attached_queue *attached_queue = self._attached_queue_of(queue)
        cdef bint more
        if attached_queue == NULL:
            return False
        more = shmq_attached_queue_serve(attached_queue)
        attached_queue = self._attached_queue_of(queue)  # it may have found the queue gone
        if attached_queue != NULL:
            attached_queue.awaited = more
        self._settle()
        return more and attached_queue != NULL

    def serve_filtered(self, queue: Handle) -> bool:
        """Deliver newly arrived messages of the queue to sessions that wait with a filter.

        Returns whether any of them still waits.
        """
        cdef shmq_attached_queue *attached_queue = self._attached_queue_of(queue)
        cdef bint more
        if attached_queue == NULL:
            return False
        more = shmq_attached_queue_serve_filtered(attached_queue, True)
        attached_queue = self._attached_queue_of(queue)
        if attached_queue != NULL:
            attached_queue.filtered_awaited = more
        self._settle()
        return more and attached_queue != NULL

    def confirmed(self, queue: Handle) -> bool:
        """Answer the puts that the queue's journal now has; whether any reply still waits."""
        cdef shmq_attached_queue *attached_queue = self._attached_queue_of(queue)
        cdef bint more
        if attached_queue != NULL and (<Handle>queue).q.h.state == SHMQ_GONE:
            shmq_attached_queue_forget(attached_queue, SHMQ_S_NO_QUEUE)
        elif attached_queue != NULL:
            more = shmq_attached_queue_confirm(attached_queue)
            attached_queue = self._attached_queue_of(queue)  # it may have found the queue gone
            if attached_queue != NULL:
                attached_queue.confirming = more
        self._settle()
        attached_queue = self._attached_queue_of(queue)
        return attached_queue != NULL and attached_queue.durable_replies > 0

    def forget(self, queue: Handle):
        """Leave a queue that was deleted or is to be left: waiting sessions get NO_QUEUE."""
        cdef shmq_attached_queue *attached_queue = self._attached_queue_of(queue)
        if attached_queue != NULL:
            shmq_attached_queue_forget(attached_queue, SHMQ_S_NO_QUEUE)
        self._settle()

    def attached(self, name: str, Handle handle: Handle | None, int status=SHMQ_S_OK):
        """Finish an ``attach`` that the control had deferred, and continue the waiting sessions.

        ``handle``: the queue's, which the engine will close; None if there is none, for the reason
        ``status``.
        """
        cdef Session session
        cdef list waiting = [each for each in self.attaching.pop(name, ()) if not each.closed]
        if handle is not None:
            self.found[name] = handle
        for session in waiting:
            if handle is None:
                session.refused = (name, status)
            shmq_unpark(session.c)
        self._settle()
        handle = self.found.pop(name, None)
        if handle is not None:  # no session waits for it any more
            self.control.detach(handle)

    def tick(self) -> float:
        """End what has expired; returns the seconds until the next call."""
        cdef int64_t next_ = shmq_engine_tick(&self.c, shmq_now())
        self.told = next_
        self._settle()
        return max(0.0, (next_ - shmq_now()) / 1e9)

    def drain(self):
        """Begin nothing new: waiting sessions get SHUTTING_DOWN. Settlements are still accepted."""
        shmq_engine_drain(&self.c)
        self._settle()

    def close(self):
        """End every session, and leave every queue. May be called again."""
        if self.open_:
            while self.c.sessions != NULL:
                (<object>self.c.sessions.data).close()
            self.open_ = False
            shmq_engine_end(&self.c)


# ---- hooks ----

cdef uint16_t _attach_attached_queue(shmq_session *session, shmq_attached_queue *attached_queue) noexcept:
    cdef Engine self = <Engine>session.engine.data
    cdef Session asking = <Session>session.data
    cdef Handle handle
    name = attached_queue.name.decode("ascii")
    try:
        if asking.refused is not None and asking.refused[0] == name:
            status, asking.refused = asking.refused[1], None
            return status
        handle = self.found.pop(name, None)
        if handle is None:
            if name not in self.attaching:
                handle = self.control.attach(name)
            if handle is None:
                self.attaching.setdefault(name, []).append(asking)
                shmq_put_back(session, NULL)
                return SHMQ_S_BUSY
    except _errors.NoSuchQueue:
        return SHMQ_S_NO_QUEUE
    except _errors.NoSpace:
        return SHMQ_S_NO_SPACE
    except _errors.LockTimeout:
        return SHMQ_S_BUSY
    except Exception as error:
        self.control.failed(error)
        return SHMQ_S_INTERNAL
    Py_INCREF(handle)
    attached_queue.data = <void *>handle
    attached_queue.q = &handle.q
    attached_queue.semaphores[0], attached_queue.semaphores[1] = handle.semaphores[0], handle.semaphores[1]
    attached_queue.views = &handle.views
    self.attached_queues[id(handle)] = <size_t>attached_queue
    return SHMQ_S_OK


cdef void _detach_attached_queue(shmq_engine *engine, shmq_attached_queue *attached_queue) noexcept:
    cdef Engine self = <Engine>engine.data
    cdef Handle handle = <Handle>attached_queue.data
    self.attached_queues.pop(id(handle), None)
    attached_queue.data = NULL
    Py_DECREF(handle)
    try:
        self.control.detach(handle)
    except Exception as error:
        self.control.failed(error)


cdef uint8_t _rights(shmq_session *session, const char *name) noexcept:
    cdef Session self = <Session>session.data
    try:
        return self.engine.control.rights(self, name.decode("ascii"))
    except Exception as error:
        self.engine.control.failed(error)
        return 0


cdef void _answer(shmq_session *session, const shmq_frame *frame, const char *name,
                  const unsigned char *rest, uint32_t size) noexcept:
    cdef Session self = <Session>session.data
    try:
        self.asked = frame.id
        status, payload = self.engine.control.answer(
            self, frame.type, name.decode("ascii"),
            PyBytes_FromStringAndSize(<const char *>rest, size))
        self._answer(frame.id, frame.type, status, payload)
    except Exception as error:
        self.engine.control.failed(error)
        shmq_reply(session, frame.id, SHMQ_S_INTERNAL, NULL, 0)


cdef void _tend_attached_queue(shmq_attached_queue *attached_queue) noexcept:
    cdef Engine self = <Engine>attached_queue.engine.data
    try:
        (<Handle>attached_queue.data)._after()
    except Exception as error:
        self.control.failed(error)


cdef void _attached_queue_failed(shmq_attached_queue *attached_queue) noexcept:
    cdef Engine self = <Engine>attached_queue.engine.data
    self.control.failed((<Handle>attached_queue.data)._error(SHMQ_DAMAGED))


cdef shmq_filter_request *_compile_for(shmq_engine *engine, const unsigned char *text, uint32_t size,
                               char *why) noexcept:
    cdef Engine self = <Engine>engine.data
    cdef Filter filter
    cdef shmq_filter_request *request = NULL
    cdef bytes told
    try:
        filter = self.control.compile(
            PyBytes_FromStringAndSize(<const char *>text, size).decode())
        request = <shmq_filter_request *>calloc(1, sizeof(shmq_filter_request) + filter.c.bytes)
        if request == NULL:
            raise MemoryError
        memcpy(request.code, filter.c.code, filter.c.bytes)
        request.filter.code = request.code
        request.filter.bytes = filter.c.bytes
        return request
    except (_errors.InvalidOption, UnicodeDecodeError) as error:
        told = str(error).encode()[:SHMQ_WHY_BYTES - 1].decode(errors="ignore").encode()
    except Exception as error:
        self.control.failed(error)
        told = b"the server has logged why"
    memcpy(why, PyBytes_AS_STRING(told), len(told) + 1)
    return NULL


cdef void _wait_at_attached_queue(shmq_attached_queue *attached_queue, cbool filtered) noexcept:
    cdef Engine self = <Engine>attached_queue.engine.data
    try:
        if filtered:
            self.control.wait_filtered(<object>attached_queue.data)
        else:
            self.control.wait(<object>attached_queue.data)
    except Exception as error:
        self.control.failed(error)


cdef void _confirm_at_attached_queue(shmq_attached_queue *attached_queue) noexcept:
    cdef Engine self = <Engine>attached_queue.engine.data
    try:
        self.control.confirm(<object>attached_queue.data)
    except Exception as error:
        self.control.failed(error)


cdef shmq_hooks _hooks
_hooks.attach = _attach_attached_queue
_hooks.detach = _detach_attached_queue
_hooks.rights = _rights
_hooks.answer = _answer
_hooks.compile = _compile_for
_hooks.tend = _tend_attached_queue
_hooks.failed = _attached_queue_failed
_hooks.wait = _wait_at_attached_queue
_hooks.confirm = _confirm_at_attached_queue
