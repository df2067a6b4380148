# The answer to one request of a connection.

@cython.freelist(64)
@cython.final
cdef class Answer:
    """The answer to one request, as far as it has come."""

    cdef readonly uint32_t id
    cdef readonly int status         # -1 until it came
    cdef readonly bint done          # nothing more comes
    cdef readonly bint lost          # the connection ended first
    cdef readonly bint streams       # of a SUBSCRIBE: messages keep coming until it is ended
    #| payload: bytes | None
    cdef readonly bytes payload      # of a REPLY; None: no REPLY came
    #| messages: list[Any] | None
    cdef public list messages
    #| notify: Callable[[Answer], object] | None
    cdef public object notify        # called with it when something has come
    cdef object queue
    cdef Acks acks
    cdef bint runs                   # its payload is a run of leased messages
    cdef bint strayed                # a run that no caller waits for any more
    cdef uint64_t end                # the end of its request among all bytes ever written
    cdef int64_t lease               # of its messages, in ns
    cdef int64_t begun
    cdef uint32_t came               # messages of a SUBSCRIBE so far, modulo 2^32
    cdef object lock                 # of the thread that sleeps until something comes

    cdef inline bint _is_ready(self):
        return self.done or (self.streams and len(self.messages) > 0)

    @property
    def is_ready(self) -> bool:
        """Whether the answer is complete, or, for a stream, whether anything has come."""
        return self._is_ready()

    # The payload as a number. Raises ServerError if it is not one.
    cdef uint64_t _number(self) except? 0:
        cdef Py_ssize_t size = 0 if self.payload is None else PyBytes_GET_SIZE(self.payload)
        if size != 8:
            raise _errors.ServerError(
                f"the server's answer makes no sense: {size} bytes are no number of 64 bits")
        return shmq_load64(<const unsigned char *>PyBytes_AS_STRING(self.payload))

    @property
    def number(self) -> int:
        """The 64-bit number in the answer. Raises ServerError if there is none."""
        return self._number()

    @property
    def accepted(self) -> int:
        """How many messages of a PRODUCE_BATCH were accepted."""
        if self.payload is None or PyBytes_GET_SIZE(self.payload) != 12 or \
                self.status == SHMQ_S_BAD_REQUEST:
            return 0  # if the whole batch was refused, the payload is text
        return shmq_load32(<const unsigned char *>PyBytes_AS_STRING(self.payload))

    @property
    def refused(self) -> list[int]:
        """The receipts that a settlement refused."""
        cdef Py_ssize_t at
        if self.status != SHMQ_S_LEASE_EXPIRED or self.payload is None:
            return []
        return [shmq_load64(<const unsigned char *>PyBytes_AS_STRING(self.payload) + at)
                for at in range(0, PyBytes_GET_SIZE(self.payload) - 7, 8)]

    def run(self) -> api.Run:
        """The run that a LEASE_RUN or LEASE_AGAIN has leased. Raises ServerError."""
        cdef bytes raw = self.payload or b""
        cdef Py_ssize_t i, count = PyBytes_GET_SIZE(raw) // RUN_ROW
        cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(raw)
        cdef _RunColumns sheet = _RunColumns(count)
        if PyBytes_GET_SIZE(raw) % RUN_ROW:
            raise _errors.ServerError(
                f"the server's answer makes no sense: {len(raw)} bytes are no whole messages")
        for i in range(count):
            sheet.sequence[i] = shmq_load64(at)
            sheet.receipt[i] = shmq_load64(at + 8)
            sheet.slot[i] = shmq_load32(at + 16)
            at += RUN_ROW
        sheet.count = count
        return sheet.run()

    def stop(self):
        """Let its waiters stop waiting."""
        self.done = True
        if self.lock is not None:
            lock, self.lock = self.lock, None
            lock.release()
        if self.notify is not None:
            self.notify(self)
