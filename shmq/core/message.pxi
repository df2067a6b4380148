# A leased message in the application's hands.

@cython.freelist(256)
@cython.final
cdef class Message:
    """See shmq.contract.Message."""

    cdef Handle handle
    cdef object consumer     # gathers acknowledgements, or None
    cdef object raw          # the body's bytes; None while they are only in shared memory
    cdef object decoded
    cdef object meta
    cdef object unpacked
    cdef readonly uint64_t receipt
    cdef readonly uint64_t sequence
    cdef readonly uint32_t delivery_count
    cdef uint32_t at
    cdef uint32_t size
    cdef const unsigned char *place
    cdef uint64_t generation
    cdef readonly int priority
    cdef uint8_t number
    cdef bint is_decoded
    cdef bint pinned         # the message itself pins the bytes
    cdef bint viewed
    cdef bint _settled
    cdef object __weakref__

    def __dealloc__(self):
        if self.pinned:
            self.handle._unpin(self.at, self.generation)

    cdef int _unpin(self) except -1:
        self.pinned = False
        self.handle._unpin(self.at, self.generation)
        return 0

    cdef int _fetch(self) except -1:
        """Copies a body that is only in shared memory."""
        if self.raw is not None:
            return 0
        if not self.pinned:
            raise _errors.LeaseExpired(
                f"message {self.sequence} was settled before its body was read: read it first")
        raw = PyBytes_FromStringAndSize(NULL, self.size)
        _copy(PyBytes_AS_STRING(raw), self.place, self.size)
        self.raw = raw
        if not self.viewed:
            self._unpin()
        return 0

    @property
    def body(self):
        """See shmq.contract.Message.body."""
        if self.is_decoded:
            return self.decoded
        self._fetch()
        if self.number == 0:
            self.decoded = self.raw
        else:
            self.decoded = _decode(self.raw, self.number, self.codec)
        self.is_decoded = True
        return self.decoded

    @property
    def view(self):
        """See shmq.contract.Message.view."""
        cdef shmq_view view
        cdef int status
        if not self.pinned and not self._settled and self.size and self.handle.open_:
            self.handle._lock()
            status = shmq_pin(&self.handle.q, self.receipt, shmq_now(), &view)
            if status == SHMQ_OK:
                self.handle.views += 1
            self.handle._unlock()
            if status == SHMQ_OK:
                self.pinned = True
                self.generation = fork_generation
                self.place = view.body
        if not self.pinned:
            self._fetch()
            return memoryview(self.raw)
        self.viewed = True
        return memoryview(_new_view(self))

    @property
    def properties(self):
        """See shmq.contract.Message.properties."""
        if self.unpacked is None:
            self.unpacked = _unpack(self.meta)
        return self.unpacked

    @property
    def headers(self):
        """See shmq.contract.Message.headers."""
        if self.meta is None:
            return {}
        return self.properties.get("headers") or {}

    @property
    def group(self):
        """See shmq.contract.Message.group."""
        return None if self.meta is None else self.properties.get("group")

    @property
    def codec(self):
        """See shmq.contract.Message.codec."""
        if self.number < 6:
            return _CODECS[self.number]
        return self.properties.get("codec", "bytes")

    @property
    def dead(self):
        """See shmq.contract.Message.dead."""
        if self.meta is None:
            return None
        return _dead(self.properties.get("dead"))

    @property
    def settled(self):
        """See shmq.contract.Message.settled."""
        return self._settled

    # A body that was not read yet is read now: nothing of it is to be lost by settling.
    # Who has taken a view is held to have read it.
    cdef int _before_settling(self) except -1:
        if self._settled:
            raise _errors.LeaseExpired(
                f"message {self.sequence} of queue {self.handle.name!r} was settled already")
        if self.pinned:
            if self.raw is None and not self.viewed:
                self._fetch()
            elif self.pinned:
                self._unpin()
        return 0

    def ack(self):
        """See shmq.contract.Message.ack."""
        self._before_settling()
        if self.consumer is not None:
            (<Consumer>self.consumer)._gather(self.receipt)
        else:
            self.handle._settle(0, self.receipt, 0)
        self._settled = True

    def nack(self, delay=None):
        """See shmq.contract.Message.nack."""
        ns = _delay_ns(delay)
        self._before_settling()
        self.handle._settle(1, self.receipt, ns)
        self._settled = True

    def reject(self):
        """See shmq.contract.Message.reject."""
        self._before_settling()
        self.handle._settle(2, self.receipt, 0)
        self._settled = True

    def extend(self, seconds):
        """See shmq.contract.Message.extend."""
        if self._settled:
            self._before_settling()
        self.handle._settle(3, self.receipt, _span_ns("seconds", seconds))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self._settled:
            return
        if kind is None:
            self.ack()
        else:
            self.nack()

    def __repr__(self):
        return (f"<Message {self.sequence} of {self.handle.name!r}: {self.size} bytes, "
                f"{self.codec}, delivery {self.delivery_count}>")


_CODECS = ("bytes", "text", "msgpack", "json", "command", "event")
_dead_letter = None


def install_dead_letter(make):
    """Set what makes a DeadLetter of the property `dead`."""
    global _dead_letter
    _dead_letter = make


cdef object _dead(properties):
    return None if properties is None else _dead_letter(properties)


cdef Message _bare_message(Handle handle, const shmq_view *view):
    cdef Message message = Message.__new__(Message)
    message.handle = handle
    message.receipt = view.receipt
    message.sequence = view.seq
    message.delivery_count = view.deliveries
    message.priority = view.priority
    message.number = view.codec
    message.size = view.body_bytes
    message.at = view.at
    message.place = view.body
    message.generation = fork_generation
    return message


# The message of a lease just taken. Its bytes are copied without the lock: they are ours
# as long as the slot's word says so, so if it still does after the copy, the copy is
# good. If the lease was lost meanwhile the application never had it: None.
cdef Message _new_message(Handle handle, const shmq_view *view, bint pinned, consumer):
    cdef Message message = _bare_message(handle, view)
    message.consumer = consumer
    if pinned:
        message.pinned = True
    else:
        message.raw = PyBytes_FromStringAndSize(NULL, view.body_bytes)
        _copy(PyBytes_AS_STRING(message.raw), view.body, view.body_bytes)
    if view.meta_bytes:
        message.meta = PyBytes_FromStringAndSize(<char *>view.meta, view.meta_bytes)
    if not pinned and not shmq_holds(&handle.q, view.receipt):
        return None
    return message


# A copy of a pinned slot's message, which can settle nothing.
cdef Message _copy_message(Handle handle, const shmq_view *view):
    cdef Message message = _bare_message(handle, view)
    message.raw = PyBytes_FromStringAndSize(NULL, view.body_bytes)
    _copy(PyBytes_AS_STRING(message.raw), view.body, view.body_bytes)
    if view.meta_bytes:
        message.meta = PyBytes_FromStringAndSize(<char *>view.meta, view.meta_bytes)
    message._settled = True
    return message
