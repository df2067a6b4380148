# One connection of an Engine.

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
        while not flags and round_ < MOST_LINGERS and self._is_alone() and self._linger(fd):
            flags = self._carry_on(fd, True)
            round_ += 1
        return self._flags()

    # `came`: the available input was received already.
    cdef int _carry_on(self, int fd, bint came) except -1:
        cdef int round_
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
        ns = _spin_time(&self.engine.spin)
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
                got = recv(fd, at, size, MSG_DONTWAIT)
        else:
            got = recv(fd, at, size, MSG_DONTWAIT)
        self._took(got, errno)
        # With no output to send, which would reveal it, a reset behind these bytes must be looked
        # for now: there may be no other event.
        return got > 0 and (<size_t>got == size or not shmq_pending(&self.c.out))

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
        """End the session, whose connection is gone. Its leases return at once. May be repeated."""
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
