# The server's side of the wire protocol: see shmq/core/server/server.h. Everything but the I/O of
# Session is C.

WANTS_WRITE = _WANTS_WRITE
PAUSED = _PAUSED
ENDING = _ENDING
GONE = _GONE

cdef enum:
    _WANTS_WRITE = 1
    _PAUSED = 2
    _ENDING = 4
    _GONE = 8
    MOST_PIECES = 64      # of one sendmsg
    MOST_ROUNDS = 16      # receives in a row before another connection's turn
    MOST_LINGERS = 32     # requests in a row that it spins for
    IN_A_ROW = 16         # events of one connection before it spins for its next request


@cython.no_gc_clear
@cython.final
cdef class Session:
    """The incoming and outgoing frames of one connection.

    Its methods return flags. WANTS_WRITE: output is left, wait until the peer accepts it.
    PAUSED: receive nothing before that. ENDING: nothing will be sent after the current output;
    half-close then, and discard further input. GONE: close now.
    """

    cdef shmq_session *c
    cdef readonly Engine engine
    cdef public object context
    cdef readonly uint32_t asked     # the message id of the request that the control is to answer
    cdef tuple refused               # the name of a queue, and the status of its failed attach
    cdef bint gone
    cdef bint unread                 # input, or a reset, may be left that was not received

    def __cinit__(self, Engine engine, context):
        self.engine = engine
        self.context = context
        if not engine.open_:
            raise _errors.ShmqError("this engine is closed")
        self.c = shmq_session_begin(&engine.c, <void *>self)
        if self.c == NULL:
            raise MemoryError
        Py_INCREF(self)          # owned by its C part until close

    cdef int _flags(self):
        cdef int flags = 0
        if self.c == NULL or self.gone or self.c.broken:
            return _GONE
        if shmq_pending(&self.c.out):
            flags |= _WANTS_WRITE
        if shmq_session_is_paused(self.c):
            flags |= _PAUSED
        if shmq_session_is_ending(self.c):
            flags |= _ENDING
        return flags

    @property
    def flags(self) -> int:
        """The flags that say what the caller must do now."""
        return self._flags()

    @property
    def unsettled(self) -> int:
        """How many messages it has leased."""
        return 0 if self.c == NULL else self.c.unsettled

    @property
    def promised(self) -> int:
        """How many replies wait for the disk or for another slow operation."""
        return 0 if self.c == NULL else self.c.durable_reply_count + self.c.parked

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.c == NULL

    def readable(self, int fd) -> int:
        """Receive the available input, carry it out, and send what can be sent at once.

        If no other connection has been active for a while, it spins some microseconds for the
        next request, as long as that pays.
        """
        cdef int round_ = 0
        cdef int flags = self._carry_on(fd, False)
        while not flags and self.unread and is_over(fd):
            flags = self._carry_on(fd, False)
        while not flags and round_ < MOST_LINGERS and self._is_alone() and self._linger(fd):
            flags = self._carry_on(fd, True)
            round_ += 1
        return self._flags()

    # `came`: the available input was received already.
    cdef int _carry_on(self, int fd, bint came) except -1:
        cdef int round_
        self.unread = not came
        if self.c != NULL:
            for round_ in range(MOST_ROUNDS):
                if came or not self._receive(fd):
                    break
            self.engine._settle()
        return self.writable(fd)

    # Whether no other session has received anything for a while.
    cdef bint _is_alone(self):
        if self.engine.last is not self:
            self.engine.last = self
            self.engine.in_a_row = 0
        self.engine.in_a_row += 1
        return self.engine.in_a_row > IN_A_ROW

    # Spins as long as is worthwhile; whether input came.
    cdef bint _linger(self, int fd) except -1:
        cdef size_t size = 0
        cdef ssize_t got
        cdef int why
        cdef unsigned char *at
        cdef int64_t ns
        if self.c == NULL or self.c.large_body.active:
            return False
        ns = shmq_spin_time(&self.engine.spin)
        at = shmq_session_space(self.c, &size)
        if not ns or at == NULL:
            return False
        with nogil:
            got = _spin_recv(fd, at, size, &self.engine.spin, ns, &why)
        self._took(got, why)
        return got > 0

    # Receives once; whether more may be available.
    cdef bint _receive(self, int fd) except -1:
        cdef size_t size = 0
        cdef ssize_t got
        cdef unsigned char *at
        if self.c == NULL or self.gone or self.c.broken:
            return False
        at = shmq_session_space(self.c, &size)
        if at == NULL and not self.c.finished:
            return False
        if at == NULL:
            at = self.engine.c.scratch  # further input is not carried out
            size = SHMQ_SCRATCH
        if self.c.large_body.active:
            with nogil:
                got = c_recv(fd, at, size, MSG_DONTWAIT)
        else:
            got = c_recv(fd, at, size, MSG_DONTWAIT)
        self._took(got, errno)
        # With no output to send, which would reveal it, a reset behind these bytes must be looked
        # for now: there may be no other event.
        self.unread = got > 0 and (<size_t>got == size or not shmq_pending(&self.c.out))
        return self.unread

    # Handles the result of a recv.
    cdef int _took(self, ssize_t got, int why) except -1:
        if got > 0:
            if not self.c.finished:
                shmq_session_received(self.c, got)
        elif got == 0:
            self.gone = self.c.finished
            shmq_session_finish(self.c)
        elif why != EAGAIN and why != EINTR:
            self.gone = True
        return 0

    def writable(self, int fd) -> int:
        """Send what can be sent at once."""
        while self._send(fd):
            pass
        return self._flags()

    # Sends once; whether the peer may accept more.
    cdef bint _send(self, int fd) except -1:
        cdef iovec pieces[MOST_PIECES]
        cdef msghdr message
        cdef ssize_t sent
        cdef size_t pending
        if self.c == NULL or self.gone or self.c.broken:
            return False
        pending = shmq_pending(&self.c.out)
        if not pending:
            return False
        memset(&message, 0, sizeof(message))
        message.msg_iov = pieces
        message.msg_iovlen = shmq_outbox_pieces(&self.c.out, pieces, MOST_PIECES)
        if pending > NOGIL_COPY:
            with nogil:
                sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
        else:
            sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0:
            self.gone = errno != EAGAIN and errno != EINTR
            return False
        shmq_session_sent(self.c, sent)
        self.engine._settle()
        return True

    def feed(self, data) -> int:
        """Carry out bytes that the caller received by other means."""
        cdef Py_buffer source
        cdef size_t done = 0, size = 0, part
        cdef unsigned char *at
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            while self.c != NULL and done < <size_t>source.len and not self.c.finished:
                at = shmq_session_space(self.c, &size)
                part = min(size, source.len - done)
                if at == NULL:
                    shmq_session_hold(self.c, <char *>source.buf + done, source.len - done)
                    break
                memcpy(at, <char *>source.buf + done, part)
                shmq_session_received(self.c, part)
                done += part
        finally:
            PyBuffer_Release(&source)
        self.engine._settle()
        return self._flags()

    def take(self, size_t most=65536) -> bytes:
        """Take up to ``most`` bytes for the caller to send by other means; they count as sent."""
        cdef iovec pieces[MOST_PIECES]
        cdef uint32_t count, i
        cdef size_t size = 0, part
        cdef list taken = []
        if self.c == NULL:
            return b""
        count = shmq_outbox_pieces(&self.c.out, pieces, MOST_PIECES)
        for i in range(count):
            part = min(pieces[i].iov_len, most - size)
            taken.append(PyBytes_FromStringAndSize(<char *>pieces[i].iov_base, part))
            size += part
        shmq_session_sent(self.c, size)
        self.engine._settle()
        return b"".join(taken)

    def finish(self) -> int:
        """Note that the peer sends no more: carry out its whole frames, and end its waits."""
        if self.c != NULL:
            shmq_session_finish(self.c)
            self.engine._settle()
        return self._flags()

    def close(self):
        """End the session, whose connection is gone. Its leases return. May be repeated."""
        cdef shmq_session *c = self.c
        if c == NULL:
            return
        self.c = NULL
        if self.engine.last is self:
            self.engine.last = None
        shmq_session_end(c)
        Py_DECREF(self)
        if self.engine.open_:
            self.engine._settle()

    def own(self):
        """Note that queues end with the session: it may be idle for as long as it likes."""
        if self.c != NULL:
            self.c.owns = True

    def supervise(self, bint supervised):
        """Note whether a supervisor reports the death of the client: its leases wait for that."""
        if self.c != NULL:
            self.c.supervised = supervised

    def park(self):
        """Leave the current request to `unpark`. It holds back all later requests."""
        if self.c != NULL:
            shmq_park(self.c)

    def put_back(self):
        """Carry out the current request again after `resume`; all later requests wait."""
        if self.c != NULL:
            shmq_put_back(self.c, NULL)

    def resume(self):
        """Continue with the request that was put back."""
        if self.c != NULL:
            shmq_unpark(self.c)
            self.engine._settle()

    def unpark(self, uint32_t asked, int kind, int status, payload):
        """Answer the parked request, which has the message id ``asked``, and continue."""
        if self.c != NULL and not self.c.finished:
            self._answer(asked, kind, status, payload)
        if self.c != NULL:
            shmq_unpark(self.c)
            self.engine._settle()

    def delay(self) -> bool:
        """Leave the current request to `answer_late`. It does not hold back later requests.

        Returns False if too many requests of the connection wait already.
        """
        return self.c != NULL and shmq_answer_later(self.c)

    def answer_late(self, uint32_t asked, int status, bytes payload):
        """Answer the request with the message id ``asked``, unless the session has ended."""
        if self.c != NULL:
            shmq_answer_late(self.c, asked, status, PyBytes_AS_STRING(payload),
                             <uint32_t>PyBytes_GET_SIZE(payload))
            self.engine._settle()

    def durable_reply(self) -> int:
        """Delay the current request until its changes are on disk; returns the ticket for `keep`.

        Such replies keep their order among themselves.
        """
        return 0 if self.c == NULL else shmq_durable_reply_later(self.c, self.asked)

    def keep(self, uint64_t ticket, int status, bytes payload):
        """Send the reply promised by `durable_reply`, unless the session has ended."""
        if self.c != NULL:
            shmq_durable_reply_settle(self.c, ticket, status, PyBytes_AS_STRING(payload),
                                <uint32_t>PyBytes_GET_SIZE(payload))
            self.engine._settle()

    # Sends the control's answer; None means that it will come later.
    cdef int _answer(self, uint32_t asked, int kind, int status, payload) except -1:
        cdef bytes text
        if payload is None:
            return 0
        if status >= SHMQ_S_BAD_MAGIC:
            text = bytes(payload)
            shmq_refuse(self.c, asked, status, PyBytes_AS_STRING(text))
        elif kind == SHMQ_T_PEEK and status == SHMQ_S_OK:
            self._send_copies(asked, payload)
        else:
            if kind == SHMQ_T_HELLO and status == SHMQ_S_OK:
                self.c.authorised = True
                shmq_session_renew_rights(self.c)
            text = bytes(payload)
            shmq_reply(self.c, asked, status, PyBytes_AS_STRING(text),
                       <uint32_t>PyBytes_GET_SIZE(text))
        return 0

    cdef int _send_copies(self, uint32_t id_, list copies) except -1:
        cdef shmq_view view
        cdef Message copy
        cdef Py_ssize_t left = len(copies)
        cdef bytes raw
        if not left:
            shmq_reply(self.c, id_, SHMQ_S_QUEUE_EMPTY, NULL, 0)
        for copy in copies:
            left -= 1
            memset(&view, 0, sizeof(view))
            raw = copy.raw
            view.seq = copy.sequence
            view.deliveries = copy.delivery_count
            view.priority = <uint8_t>copy.priority
            view.codec = copy.number
            view.body = <const unsigned char *>PyBytes_AS_STRING(raw)
            view.body_bytes = <uint32_t>PyBytes_GET_SIZE(raw)
            if copy.meta is not None:
                view.meta = <const unsigned char *>PyBytes_AS_STRING(copy.meta)
                view.meta_bytes = <uint32_t>PyBytes_GET_SIZE(copy.meta)
            shmq_deliver_copy(self.c, id_, &view, left > 0)
        return 0


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
        carries out a request whose operation is `by = "policy"` in shmq/protocol/opcodes.toml;
        `rest` is the payload behind the name. Returns the status and the payload of the
        REPLY; for a PEEK that found messages, OK and the list of copies; None for the payload
        if `Session.answer_late`, `Session.keep` or, after `Session.park`, `Session.unpark`
        will give it.
    ``consume(session, queue)``
        counts the session among the consumers of a queue that ends by itself, until the session
        ends. Raises Forbidden if the queue is exclusive to another, LockTimeout, QueueDeleted.
    ``refused(session, kind, name, right)``
        is called when a request was refused that the engine answers itself: the session lacks the
        right; 0: it has no right to the queue at all.
    ``compile(where)``
        returns the `Filter` of a client's expression. Raises InvalidOption.
    ``wait(queue)``
        is called when a session waits: from now on it calls `serve` whenever a message may have
        come.
    ``wait_filtered(queue)``
        is called when a session waits with a filter: from now on it calls `serve_filtered`
        whenever a message has arrived.
    ``on_output_pending(session)``
        is called when the session has output or must be closed, as its ``flags`` say.
    ``confirm(queue)``
        is called when a session waits for the queue's journal: it calls `Engine.confirmed`
        whenever the journal has progressed, until that returns false.
    ``sooner()``
        is called when `tick` is due earlier than its last result said.
    ``failed(error)``
        logs an exception that one of these has raised, or why a queue could not be used.
    """

    cdef shmq_engine c
    cdef readonly object control
    cdef Session last            # the session that was read from last, if no other was since
    cdef int in_a_row            # how many times in a row
    cdef shmq_spin_rate spin
    cdef dict attached_queues              # by the id of its handle: the address of the attached queue
    cdef dict attaching          # by the name of a queue: the sessions waiting for its attach
    cdef dict found              # by the name of a queue: the handle for those sessions
    cdef int64_t announced       # the time of the next tick, as `tick` last returned it
    cdef bint open_

    def __cinit__(self, control, **limits):
        """``limits``: the arguments of `set_limits`."""
        self.control = control
        self.attached_queues = {}
        self.attaching = {}
        self.found = {}
        self.open_ = False
        shmq_spin_init(&self.spin, LEAST_SPIN_OF_RECV)
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
        if due < self.announced:
            self.announced = due
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
        self.announced = next_
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


cdef uint16_t _consume_at(shmq_session *session, shmq_attached_queue *attached_queue,
                          char *why) noexcept:
    cdef Session self = <Session>session.data
    cdef bytes reason
    try:
        self.engine.control.consume(self, <object>attached_queue.data)
        return SHMQ_S_OK
    except _errors.Forbidden as error:
        reason = str(error).encode()[:SHMQ_WHY_BYTES - 1].decode(errors="ignore").encode()
        memcpy(why, PyBytes_AS_STRING(reason), len(reason) + 1)
        return SHMQ_S_FORBIDDEN
    except (_errors.QueueDeleted, _errors.NoSuchQueue):
        return SHMQ_S_NO_QUEUE
    except _errors.NoSpace:
        return SHMQ_S_NO_SPACE
    except _errors.LockTimeout:
        return SHMQ_S_BUSY
    except Exception as error:
        self.engine.control.failed(error)
        return SHMQ_S_INTERNAL


cdef void _refused(shmq_session *session, uint8_t kind, const char *name, uint8_t right) noexcept:
    cdef Session self = <Session>session.data
    try:
        self.engine.control.refused(self, kind, name.decode("ascii"), right)
    except Exception as error:
        self.engine.control.failed(error)


cdef void _tend_attached_queue(shmq_attached_queue *attached_queue) noexcept:
    cdef Engine self = <Engine>attached_queue.engine.data
    try:
        (<Handle>attached_queue.data)._after()
    except Exception as error:
        self.control.failed(error)


cdef void _attached_queue_failed(shmq_attached_queue *attached_queue) noexcept:
    cdef Engine self = <Engine>attached_queue.engine.data
    self.control.failed(_error(<Handle>attached_queue.data, SHMQ_DAMAGED))


cdef shmq_filter_request *_compile_for(shmq_engine *engine, const unsigned char *text, uint32_t size,
                               char *why) noexcept:
    cdef Engine self = <Engine>engine.data
    cdef Filter filter
    cdef shmq_filter_request *request = NULL
    cdef bytes reason
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
        reason = str(error).encode()[:SHMQ_WHY_BYTES - 1].decode(errors="ignore").encode()
    except Exception as error:
        self.control.failed(error)
        reason = b"the server has logged why"
    memcpy(why, PyBytes_AS_STRING(reason), len(reason) + 1)
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
_hooks.consume = _consume_at
_hooks.refused = _refused
_hooks.compile = _compile_for
_hooks.tend = _tend_attached_queue
_hooks.failed = _attached_queue_failed
_hooks.wait = _wait_at_attached_queue
_hooks.confirm = _confirm_at_attached_queue
