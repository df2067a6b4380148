# One connection of a Engine.

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
    MOST_ROUNDS = 16      # receives in a row, then it is another connection's turn
    MOST_LINGERS = 32     # requests in a row that are waited for
    IN_A_ROW = 16         # events of one connection until its next request is waited for


@cython.no_gc_clear
@cython.final
cdef class Session:
    """A connection's frames, in and out.

    Its methods return flags: WANTS_WRITE, output is left, wait until the peer takes it;
    PAUSED, nothing is to be received before that; ENDING, once all is sent no more will
    be: half-close, and discard what still comes; GONE, close now.
    """

    cdef shmq_session *c
    cdef readonly Engine engine
    cdef public object context
    cdef readonly uint32_t asked     # the message id of what the control is to answer
    cdef tuple refused               # the name of a queue, and the status that its attaching had
    cdef bint gone

    def __cinit__(self, Engine engine, context):
        self.engine = engine
        self.context = context
        if not engine.open_:
            raise _errors.ShmqError("this engine is closed")
        self.c = shmq_session_begin(&engine.c, <void *>self)
        if self.c == NULL:
            raise MemoryError
        Py_INCREF(self)          # of its C half, until close

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
        """What is to be done for it now."""
        return self._flags()

    @property
    def unsettled(self) -> int:
        """Messages that it has leased."""
        return 0 if self.c == NULL else self.c.unsettled

    @property
    def promised(self) -> int:
        """Answers that wait for the disk, or for something else that takes a while."""
        return 0 if self.c == NULL else self.c.durable_reply_count + self.c.parked

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.c == NULL

    def readable(self, int fd) -> int:
        """Receive what is there, carry it out, and send what can be sent at once.

        Where nobody else has said anything for a while, the next request is waited for
        some microseconds, as long as that pays.
        """
        cdef int round_ = 0
        cdef int flags = self._carry_on(fd, False)
        while not flags and round_ < MOST_LINGERS and self._is_alone() and self._linger(fd):
            flags = self._carry_on(fd, True)
            round_ += 1
        return self._flags()

    # `came`: what is there was received already.
    cdef int _carry_on(self, int fd, bint came) except -1:
        cdef int round_
        if self.c != NULL:
            for round_ in range(MOST_ROUNDS):
                if came or not self._receive(fd):
                    break
            self.engine._settle()
        return self.writable(fd)

    # Whether no other session has been read from for a while.
    cdef bint _is_alone(self):
        if self.engine.last is not self:
            self.engine.last = self
            self.engine.in_a_row = 0
        self.engine.in_a_row += 1
        return self.engine.in_a_row > IN_A_ROW

    # Whether something came within the time that is worth waiting.
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

    # Whether more may be there.
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
            at = self.engine.c.scratch  # nothing that comes now is carried out
            size = SHMQ_SCRATCH
        if self.c.large_body.active:
            with nogil:
                got = recv(fd, at, size, MSG_DONTWAIT)
        else:
            got = recv(fd, at, size, MSG_DONTWAIT)
        self._took(got, errno)
        # Where nothing is to be sent, which would tell of it, a reset behind these bytes is
        # looked for now: there may be no other event.
        return got > 0 and (<size_t>got == size or not shmq_pending(&self.c.out))

    # What came of a recv.
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

    # Whether the peer may take more.
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
        """Carry out bytes that came some other way."""
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
        """Up to ``most`` bytes to be sent some other way; they count as sent."""
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
        """The peer sends no more: its whole frames are carried out, its waits end."""
        if self.c != NULL:
            shmq_session_finish(self.c)
            self.engine._settle()
        return self._flags()

    def close(self):
        """The connection is gone: its leases go back at once. May be called again."""
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
        """What is being answered is answered by `unpark`. It holds all behind it back."""
        if self.c != NULL:
            shmq_park(self.c)

    def put_back(self):
        """What is being answered is carried out again after `resume`, and all behind it waits."""
        if self.c != NULL:
            shmq_put_back(self.c, NULL)

    def resume(self):
        """Go on with what was put back."""
        if self.c != NULL:
            shmq_unpark(self.c)
            self.engine._settle()

    def unpark(self, uint32_t asked, int kind, int status, payload):
        """Answer the request that was parked, with the message id ``asked``, and go on."""
        if self.c != NULL and not self.c.finished:
            self._answer(asked, kind, status, payload)
        if self.c != NULL:
            shmq_unpark(self.c)
            self.engine._settle()

    def delay(self) -> bool:
        """What is being answered is answered later: see `answer_late`. It holds nothing back.

        False: too many of the connection's requests wait.
        """
        return self.c != NULL and shmq_answer_later(self.c)

    def answer_late(self, uint32_t asked, int status, bytes payload):
        """Answer the request that had the message id ``asked``, unless nobody waits for it."""
        if self.c != NULL:
            shmq_answer_late(self.c, asked, status, PyBytes_AS_STRING(payload),
                             <uint32_t>PyBytes_GET_SIZE(payload))
            self.engine._settle()

    def durable_reply(self) -> int:
        """As `delay`, for what is to be on disk: the ticket for `keep`.

        Such answers keep their order among themselves.
        """
        return 0 if self.c == NULL else shmq_durable_reply_later(self.c, self.asked)

    def keep(self, uint64_t ticket, int status, bytes payload):
        """Answer what was promised, unless nobody waits for it."""
        if self.c != NULL:
            shmq_durable_reply_settle(self.c, ticket, status, PyBytes_AS_STRING(payload),
                                <uint32_t>PyBytes_GET_SIZE(payload))
            self.engine._settle()

    # Answers what the control has decided; None: it will.
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
