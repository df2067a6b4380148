# A leased message held by the application, views of its bytes, and the ResourceWarning for one that
# is dropped unsettled, like that for unclosed files.

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030D0000
    #define shmq_interpreter_ends _Py_IsFinalizing
    #else
    #define shmq_interpreter_ends Py_IsFinalizing
    #endif

    static destructor shmq_free_message;                  /* as Cython made it */
    static Py_ssize_t shmq_settled_at;                    /* where `_settled` is in a Message */
    static void (*shmq_look_at_dropped)(PyObject *message);

    /* tp_dealloc of Message. A settled one costs one look at its flag: a __dealloc__ would
     * cost each message ten times that. One that is not settled lives while it is looked at,
     * and nothing may keep it. */
    static void shmq_end_message(PyObject *message)
    {
        PyObject *type, *value, *trace;

        if (!*(int *)((char *)message + shmq_settled_at)) {
            PyErr_Fetch(&type, &value, &trace);
            Py_SET_REFCNT(message, 1);
            shmq_look_at_dropped(message);
            Py_SET_REFCNT(message, Py_REFCNT(message) - 1);
            PyErr_Restore(type, value, trace);
        }
        shmq_free_message(message);
    }

    static void shmq_watch_messages(PyTypeObject *type, Py_ssize_t settled_at,
                                    void (*look)(PyObject *message))
    {
        shmq_settled_at = settled_at;
        shmq_look_at_dropped = look;
        shmq_free_message = type->tp_dealloc;
        type->tp_dealloc = shmq_end_message;
    }
    """
    int shmq_interpreter_ends()
    void shmq_watch_messages(type type, Py_ssize_t settled_at, void (*look)(object) noexcept)


def warn_dropped(str what, int frames=1):
    """Issue the ResourceWarning that ``what`` was dropped while it was leased.

    The warning names the line ``frames`` frames up. At the interpreter's exit none is issued.
    """
    if shmq_interpreter_ends():
        return
    _warnings.warn(
        f"{what} was dropped while it was leased, and comes back only when the lease ends or the "
        f"handle is closed: call ack(), nack() or reject(), or use it as a context manager",
        ResourceWarning, stacklevel=frames)


@cython.no_gc_clear
@cython.final
cdef class View:
    """Bytes of a queue's arena, pinned until the last memoryview of them is gone."""

    cdef Handle handle
    cdef void *place
    cdef Py_ssize_t size
    cdef uint32_t at
    cdef uint64_t generation
    cdef bint writable

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.place, self.size, not self.writable, flags)

    def __dealloc__(self):
        if self.handle is not None:
            self.handle._unpin(self.at, self.generation)


# Takes over a pin that the caller has just taken.
cdef View _new_view(Handle handle, const shmq_view *view):
    cdef View holder = View.__new__(View)
    _hold(holder, handle, view)
    return holder


cdef void _hold(View holder, Handle handle, const shmq_view *view) noexcept:
    holder.handle = handle
    holder.place = <void *>view.body
    holder.size = view.body_bytes
    holder.at = view.at
    holder.generation = fork_generation


@cython.freelist(256)
@cython.no_gc_clear
@cython.final
cdef class Message:
    """Implements :class:`shmq.api.Message`."""

    cdef Handle handle
    cdef _AckBuffer gatherer  # its consumer's; None if it was leased by itself
    cdef object raw          # the body's bytes; None while they are only in shared memory
    cdef object decoded
    cdef bytes meta
    cdef dict unpacked
    cdef uint64_t lease          # the core's receipt
    cdef readonly uint64_t sequence
    cdef readonly uint32_t delivery_count
    cdef uint32_t size
    cdef readonly int priority
    cdef uint8_t number
    cdef bint is_decoded
    cdef bint viewed
    cdef int _settled            # and how: BY_ACK, ...
    cdef int64_t settled_at      # in monotonic ns
    cdef bint by_receipt         # its receipt was read, and may settle it from anywhere
    cdef object __weakref__

    # Copies a body that is only in shared memory. A pin protects the bytes in the meantime; if another
    # process has pinned them, the lock does.
    cdef int _fetch(self) except -1:
        cdef shmq_view view
        cdef int status
        if self.raw is not None:
            return 0
        raw = PyBytes_FromStringAndSize(NULL, self.size)
        status = self._pin(&view, PyBytes_AS_STRING(raw))
        if status == SHMQ_STALE:
            raise _errors.LeaseExpired(
                f"the body of message {self.sequence} of queue {self.handle.name!r} was not read "
                f"before the message was settled or its lease ended")
        if status == SHMQ_OK:
            _copy(PyBytes_AS_STRING(raw), view.body, self.size)
            self.handle._unpin(view.at, fork_generation)
        self.raw = raw
        return 0

    # SHMQ_OK: pinned. SHMQ_BUSY: copied to `to`, if it is given. SHMQ_STALE: the lease has expired.
    cdef int _pin(self, shmq_view *view, char *to) except -1:
        cdef int status
        if self._settled or not self.handle.open_:
            return SHMQ_STALE
        _lock(self.handle)
        status = shmq_pin(&self.handle.q, self.lease, shmq_now(), view)
        if status == SHMQ_OK:
            self.handle.views += 1
        elif status == SHMQ_BUSY and to != NULL:
            memcpy(to, view.body, self.size)
        _unlock(self.handle)
        return status

    @property
    def body(self) -> Any:
        """See shmq.api.Message.body."""
        if self.is_decoded:
            return self.decoded
        self._fetch()
        if self.number == 0:
            self.decoded = self.raw
        else:
            self.decoded = _policy.decode_body(self.raw, self.number, self.codec)
        self.is_decoded = True
        return self.decoded

    @property
    def view(self) -> memoryview:
        """See shmq.api.Message.view."""
        cdef shmq_view view
        if self.size and self._pin(&view, NULL) == SHMQ_OK:
            self.viewed = True
            return memoryview(_new_view(self.handle, &view))
        self._fetch()
        return memoryview(self.raw)

    def readinto(self, buffer) -> int:
        """See shmq.api.Message.readinto."""
        cdef shmq_view view
        cdef Py_buffer target
        cdef int status = SHMQ_STALE
        PyObject_GetBuffer(buffer, &target, PyBUF_WRITABLE)
        try:
            if target.len < self.size:
                raise _errors.InvalidOption(
                    f"a buffer of {target.len} bytes cannot hold a body of {self.size}")
            if self.raw is None:
                status = self._pin(&view, <char *>target.buf)
            if status == SHMQ_OK:
                try:
                    _copy(target.buf, view.body, self.size)
                finally:
                    self.handle._unpin(view.at, fork_generation)
                self.viewed = True
            elif status != SHMQ_BUSY:
                self._fetch()
                memcpy(target.buf, PyBytes_AS_STRING(self.raw), self.size)
            return self.size
        finally:
            PyBuffer_Release(&target)

    @property
    def receipt(self) -> int:
        """See shmq.api.Message.receipt."""
        self.by_receipt = True
        return c_seal(&self.handle.q.seal, self.lease)

    def ttl_left(self) -> float | None:
        """How long the leased message has until it expires, in seconds; None: it does not."""
        cdef shmq_view view
        shmq_look(&self.handle.q, &self.handle.q.slots[self.lease & SHMQ_RECEIPT_SLOT], &view)
        return max((view.expires - shmq_now()) / 1e9, 0.001) if view.expires else None

    cdef dict _all(self):
        if self.unpacked is None:
            self.unpacked = _policy.unpack_properties(self.meta)
        return self.unpacked

    @property
    def properties(self) -> Mapping[str, Any]:
        """See shmq.api.Message.properties."""
        return self._all()

    # texts of a local message: made by tools/options.py

    @property
    def group(self) -> str | None:
        """See shmq.api.Message.group."""
        return None if self.meta is None else self._all().get("group")

    @property
    def reply_to(self) -> str | None:
        """See shmq.api.Message.reply_to."""
        return None if self.meta is None else self._all().get("reply_to")

    @property
    def correlation(self) -> str | None:
        """See shmq.api.Message.correlation."""
        return None if self.meta is None else self._all().get("corr")

    # end

    @property
    def headers(self) -> Mapping[str, Any]:
        """See shmq.api.Message.headers."""
        return {} if self.meta is None else self._all().get("headers") or {}

    @property
    def codec(self) -> str:
        """See shmq.api.Message.codec."""
        if self.number < len(_CODECS):
            return _CODECS[self.number]
        return self._all().get("codec", "bytes")

    @property
    def dead(self) -> Any:
        """See shmq.api.Message.dead."""
        return None if self.meta is None else _dead(self._all().get("dead"))

    @property
    def last_error(self) -> Any:
        """See shmq.api.Message.last_error."""
        return None if self.meta is None else _failure(self.properties.get("error"))

    @property
    def settled(self) -> bool:
        """See shmq.api.Message.settled."""
        return self._settled != UNSETTLED

    # Reads a body that was not read yet, because it is lost once the message is settled. A message
    # whose view was taken counts as read.
    cdef int _before_settling(self) except -1:
        if self._settled:
            _raise_settled(self.sequence, self.handle.name, self._settled,
                           shmq_now() - self.settled_at)
        return self._read_if_unread()

    cdef int _read_if_unread(self) except -1:
        if self.raw is None and not self.viewed:
            try:
                self._fetch()
            except _errors.LeaseExpired:
                pass  # the settlement will report it
        return 0

    def ack(self):
        """See shmq.api.Message.ack."""
        self._before_settling()
        if self.gatherer is not None:
            self.settled_at = self.gatherer.add(self.lease)
        else:
            self.settled_at = _settle(self.handle, ACK, self.lease, 0)
        self._settled = BY_ACK

    def nack(self, delay: float | None = None, *, counted: bool = True,
             error: BaseException | api.Failure | str | None = None):
        """See shmq.api.Message.nack."""
        ns, why = _delay_ns(delay), pack_error(error, counted)
        self._before_settling()
        self.settled_at = _fail(self.handle, NACK if counted else RETURN, self.lease, ns, why)
        self._settled = BY_NACK

    def reject(self, reason: BaseException | api.Failure | str | None = None):
        """See shmq.api.Message.reject."""
        why = pack_error(reason)
        self._before_settling()
        self.settled_at = _fail(self.handle, REJECT, self.lease, 0, why)
        self._settled = BY_REJECT

    def extend(self, seconds: float):
        """See shmq.api.Message.extend."""
        if self._settled:
            self._before_settling()
        _settle(self.handle, EXTEND, self.lease, _span_ns("seconds", seconds))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self._settled:
            return
        if kind is None:
            self.ack()
        else:
            self.nack(error=error)

    def __reduce__(self):
        raise TypeError(
            "a message is leased by this process and cannot be pickled: send its receipt, which "
            "settles it from anywhere")

    def __repr__(self):
        return (f"<Message {self.sequence} of {self.handle.name!r}: {self.size} "
                f"byte{'' if self.size == 1 else 's'}, "
                f"{self.codec}, delivery {self.delivery_count}>")


# Warns if a message is dropped while it still holds its lease.
cdef void _look_at_dropped(dropped) noexcept:
    cdef Message message = <Message>dropped
    cdef Handle handle = message.handle
    if (message.by_receipt or handle is None or not handle.open_
            or handle.generation != fork_generation):
        return
    if shmq_held_by_us(&handle.q, message.lease, shmq_now()):
        warn_dropped(f"message {message.sequence} of queue {handle.name!r}")


cdef void _watch_messages():
    cdef Message message = Message.__new__(Message)
    message._settled = IS_COPY
    shmq_watch_messages(Message, <char *>&message._settled - <char *><void *>message,
                        _look_at_dropped)


_watch_messages()



cdef object _failure(properties):
    return None if properties is None else _policy.failure(properties)


cpdef bytes pack_error(error: BaseException | api.Failure | str | None, bint counted=True):
    """The error of a settlement as a message keeps it; None without one. Raises InvalidOption."""
    if error is None or shmq_interpreter_ends():  # at the end it has no modules to make one
        return None
    if not counted:
        raise _errors.InvalidOption(
            "error= is of a failed delivery, and counted=False says that it did not fail: leave out "
            "one of them")
    return _policy.pack_error(error)


def fit_error(bytes error not None, uint32_t most) -> bytes:
    """A packed error in at most ``most`` bytes; empty if nothing of it fits."""
    cdef unsigned char to[<int>SHMQ_ERROR_BYTES]
    cdef shmq_text text
    text.at = <const unsigned char *>PyBytes_AS_STRING(error)
    text.bytes = <uint32_t>PyBytes_GET_SIZE(error)
    text = shmq_fit_error(text, most, to)
    return PyBytes_FromStringAndSize(<const char *>text.at, text.bytes)


cdef object _dead(properties):
    return None if properties is None else _policy.dead_letter(properties)


cdef Message _bare_message(Handle handle, const shmq_view *view):
    cdef Message message = Message.__new__(Message)
    message.handle = handle
    message.lease = view.receipt
    message.sequence = view.seq
    message.delivery_count = view.deliveries
    message.priority = view.priority
    message.number = view.codec
    message.size = view.body_bytes
    return message


# The message of a lease just taken. A small body is copied without the lock: the lease protects
# the bytes as long as the slot's word is unchanged, so the copy is good if the word is unchanged
# after it. Returns None if the lease was lost in the meantime: the application never had it.
cdef Message _new_message(Handle handle, const shmq_view *view, _AckBuffer gatherer):
    cdef Message message = _bare_message(handle, view)
    message.gatherer = gatherer
    if view.body_bytes <= SMALL:
        message.raw = PyBytes_FromStringAndSize(<char *>view.body, view.body_bytes)
    if view.meta_bytes:
        message.meta = PyBytes_FromStringAndSize(<char *>view.meta, view.meta_bytes)
    if shmq_holds(&handle.q, view.receipt, LONG_AGO):
        return message
    message._settled = IS_COPY
    return None


# A copy of a slot's message. It cannot settle anything.
cdef Message _copy_message(Handle handle, const shmq_view *view, const unsigned char *body,
                           const unsigned char *meta):
    cdef Message message = _bare_message(handle, view)
    message.raw = PyBytes_FromStringAndSize(NULL, view.body_bytes)
    _copy(PyBytes_AS_STRING(message.raw), body, view.body_bytes)
    if view.meta_bytes:
        message.meta = PyBytes_FromStringAndSize(<char *>meta, view.meta_bytes)
    message._settled = IS_COPY
    return message
