# A message that a server delivered, and the buffered acknowledgements of a consumer.

cdef class Acks
cdef class Answer
cdef class Wire


@cython.freelist(256)
@cython.no_gc_clear
@cython.final
cdef class RemoteMessage:
    """See shmq.api.Message. It owns its bytes; the server owns its lease."""

    cdef object queue            # settles: see shmq/client/remote/queue.py
    cdef Acks acks               # its consumer's; None if it was leased by itself
    cdef bytes raw
    cdef object decoded
    cdef bytes meta
    cdef dict unpacked
    cdef Wire wire               # the lease ends with this connection
    cdef uint64_t lease          # the server's receipt; 0: a copy
    cdef readonly uint64_t sequence
    cdef readonly uint32_t delivery_count
    cdef readonly int priority
    cdef uint32_t stream         # the subscription that delivered it
    cdef uint32_t number         # its number among that subscription's messages, from 1 on
    cdef int64_t deadline        # the earliest end of its lease, in monotonic ns
    cdef bint is_decoded
    cdef int _settled            # and how: BY_ACK, ...
    cdef int64_t settled_at      # in monotonic ns
    cdef bint in_hand            # the application has the message, but not its receipt
    cdef object __weakref__

    def __dealloc__(self):
        if self.in_hand and not self._settled:
            self._look_at_dropped()

    # Warns if a message is dropped whose lease still holds, as far as the client can tell.
    cdef void _look_at_dropped(self) noexcept:
        if is_leased(self):
            warn_dropped(f"message {self.sequence} of queue {self.queue.name!r}")

    @property
    def receipt(self) -> int:
        """See shmq.api.Message.receipt."""
        self.in_hand = False
        return self.lease

    @property
    def body(self) -> Any:
        """See shmq.api.Message.body."""
        if not self.is_decoded:
            codec = self.codec
            if codec == "bytes" or codec not in _CODECS:
                self.decoded = self.raw
            else:
                self.decoded = _policy.decode_body(self.raw, _CODECS.index(codec), codec)
            self.is_decoded = True
        return self.decoded

    @property
    def view(self) -> memoryview:
        """See shmq.api.Message.view."""
        return memoryview(self.raw)

    def readinto(self, buffer) -> int:
        """See shmq.api.Message.readinto."""
        cdef Py_buffer target
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.raw)
        PyObject_GetBuffer(buffer, &target, PyBUF_WRITABLE)
        try:
            if target.len < size:
                raise _errors.InvalidOption(
                    f"a buffer of {target.len} bytes cannot hold a body of {size}")
            _copy(target.buf, PyBytes_AS_STRING(self.raw), size)
            return size
        finally:
            PyBuffer_Release(&target)

    cdef dict _all(self):
        if self.unpacked is None:
            self.unpacked = _policy.unpack_properties(self.meta)
        return self.unpacked

    @property
    def properties(self) -> Mapping[str, Any]:
        """See shmq.api.Message.properties."""
        properties = self._all()
        if properties.get("codec") in _CODECS:  # the same as `codec`, as for a message put here
            properties = {key: value for key, value in properties.items() if key != "codec"}
        return properties

    # texts of a remote message: made by tools/options.py

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
        return "bytes" if self.meta is None else self._all().get("codec", "bytes")

    @property
    def dead(self) -> Any:
        """See shmq.api.Message.dead."""
        return None if self.meta is None else _dead(self._all().get("dead"))

    @property
    def last_error(self) -> Any:
        """See shmq.api.Message.last_error."""
        return None if self.meta is None else _failure(self._all().get("error"))

    @property
    def settled(self) -> bool:
        """See shmq.api.Message.settled."""
        return self._settled != UNSETTLED

    cdef int _before_settling(self) except -1:
        if self._settled:
            _raise_settled(self.sequence, self.queue.name, self._settled,
                           _real_now() - self.settled_at)
        return 0

    cdef void _after_settling(self, int how):
        self._settled = how
        if how != BY_ACK or not self.settled_at:  # `_add` has read the clock
            self.settled_at = _real_now()
        if self.acks is not None and self.stream and self.stream == self.acks.stream:
            self.acks.in_hand -= 1

    def ack(self):
        """See shmq.api.Message.ack."""
        self._before_settling()
        if self.acks is None or not self.acks._add(self):
            self.queue.ack(self.lease)
        self._after_settling(BY_ACK)

    def nack(self, delay: float | None = None, *, counted: bool = True,
             error: BaseException | api.Failure | str | None = None):
        """See shmq.api.Message.nack."""
        _delay_ns(delay)
        self._before_settling()
        self.queue.nack(self.lease, delay, counted=counted, error=error)
        self._after_settling(BY_NACK)

    def reject(self, reason: BaseException | api.Failure | str | None = None):
        """See shmq.api.Message.reject."""
        self._before_settling()
        self.queue.reject(self.lease, reason)
        self._after_settling(BY_REJECT)

    def extend(self, seconds: float):
        """See shmq.api.Message.extend."""
        cdef int64_t ns = _span_ns("seconds", seconds), now = _real_now()
        self._before_settling()
        self.queue.extend(self.lease, seconds)
        self.deadline = now + ns

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
            "a message is leased by this connection and cannot be pickled: send its receipt, "
            "which settles it from anywhere")

    def __repr__(self):
        size = PyBytes_GET_SIZE(self.raw)
        return (f"<Message {self.sequence} of {self.queue.name!r}: {size} "
                f"byte{'' if size == 1 else 's'}, {self.codec}, delivery {self.delivery_count}>")


# The message of a DELIVER, or None if it is malformed. It counts as settled if it has no use for
# `acks` and `queue`, as a copy has none.
cdef RemoteMessage _new_delivery(Wire wire, shmq_reader *r, queue, Acks acks, uint32_t stream,
                                 int64_t deadline):
    cdef RemoteMessage message = RemoteMessage.__new__(RemoteMessage)
    cdef uint8_t flags
    cdef uint32_t size
    cdef const unsigned char *at
    message.wire = wire
    message.queue = queue
    message.acks = acks
    message.stream = stream
    message.deadline = deadline
    message.sequence = shmq_read64(r)
    message.lease = shmq_read64(r)
    message.delivery_count = shmq_read16(r)
    message.priority = shmq_read8(r)
    flags = shmq_read8(r)
    if flags & SHMQ_FLAG_PROPERTIES:
        size = shmq_read32(r)
        at = shmq_read_bytes(r, size)
        if at == NULL:
            return None
        message.meta = PyBytes_FromStringAndSize(<const char *>at, size)
    if r.bad:
        return None
    size = <uint32_t>shmq_left(r)
    if size < NOGIL_COPY:
        message.raw = PyBytes_FromStringAndSize(<const char *>r.at, size)
    else:
        message.raw = PyBytes_FromStringAndSize(NULL, size)
        _copy(PyBytes_AS_STRING(message.raw), r.at, size)
    message._settled = UNSETTLED if message.lease else IS_COPY
    return message


def bodies_of(list messages) -> list[Any]:
    """The bodies of the messages, as `Message.body` returns them."""
    cdef RemoteMessage message
    cdef list bodies = []
    for message in messages:
        bodies.append(message.raw if message.meta is None else message.body)
    return bodies


def have_acked(messages: list[Any], refused: set[int]) -> None:
    """Note that these messages were acknowledged together, but for the ``refused`` receipts."""
    cdef RemoteMessage message
    for item in messages:
        if type(item) is RemoteMessage:
            message = item
            if not message._settled and message.lease not in refused:
                message._after_settling(BY_ACK)


def receipts_of(list messages) -> list[int]:
    """The receipts of messages that came from a server."""
    cdef RemoteMessage message
    return [message.lease for message in messages]


def hand_over(list messages) -> list[Any]:
    """Mark these messages as handed to the application, which must settle them."""
    cdef RemoteMessage message
    for message in messages:
        message.in_hand = True
    return messages


def is_leased(RemoteMessage message not None) -> bool:
    """Whether the message's lease still holds, as far as the client can tell."""
    return (message.wire is not None and not message.wire.is_broken
            and message.wire.generation == fork_generation and _real_now() < message.deadline)


def receipt_of(message: object) -> int:
    """The receipt of a message, or the int itself.

    Raises TypeError for anything else.
    """
    if type(message) is RemoteMessage or type(message) is Message:
        return message.receipt
    number = plain_number(message)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    raise TypeError(f"{message!r:.60} is neither a message nor a receipt of this queue")


def are_bytes(list bodies, uint64_t most) -> bool:
    """Whether each body is bytes, of at most ``most`` bytes."""
    for body in bodies:
        if type(body) is not bytes or <uint64_t>PyBytes_GET_SIZE(body) > most:
            return False
    return True


def new_put(uint64_t sequence, bint duplicate) -> Put:
    """Make the result of a put."""
    return _new_put(sequence, duplicate)


def packed_of(list messages) -> tuple[bytes, int, int | None, bytes | None]:
    """The records of all messages joined: (data, count, size of each or None, lengths or None).

    A message that is not a packed batch counts as one record.
    """
    cdef RemoteMessage message
    cdef Py_ssize_t i, count = len(messages)
    cdef uint64_t total = 0, records = 0, at = 0
    cdef bint alike = True
    cdef bytes data, each = None
    cdef shmq_packed *read = <shmq_packed *>malloc((count + 1) * sizeof(shmq_packed))
    if read == NULL:
        raise MemoryError
    try:
        for i in range(count):
            message = messages[i]
            _read_records(message, &read[i])
            total += read[i].bytes
            records += read[i].count
            alike = alike and read[i].lengths == NULL and read[i].size == read[0].size
        data = PyBytes_FromStringAndSize(NULL, total)
        for i in range(count):
            message = messages[i]
            _copy(PyBytes_AS_STRING(data) + at, PyBytes_AS_STRING(message.raw), read[i].bytes)
            at += read[i].bytes
        if not alike:
            each = _lengths_of(read, count, records)
        return data, records, None if not alike else read[0].size if count else 0, each
    finally:
        free(read)


cdef int _read_records(RemoteMessage message, shmq_packed *read) except -1:
    cdef const unsigned char *raw = <const unsigned char *>PyBytes_AS_STRING(message.raw)
    cdef uint64_t size = PyBytes_GET_SIZE(message.raw)
    if message.meta is not None and message.codec == "packed" and shmq_packed_read(
            raw, size, read):
        return 0
    read.bytes = size
    read.size = <uint32_t>size
    read.count = 1
    read.lengths = NULL
    return 0


cdef bytes _lengths_of(const shmq_packed *read, Py_ssize_t count, uint64_t records):
    cdef bytes each = PyBytes_FromStringAndSize(NULL, records * 4)
    cdef uint32_t *to = <uint32_t *>PyBytes_AS_STRING(each)
    cdef uint32_t record
    cdef Py_ssize_t i
    for i in range(count):
        for record in range(read[i].count):
            to[0] = shmq_packed_length(&read[i], record)
            to += 1
    return each


def records_in(messages: Iterable[Any]) -> int:
    """How many records the messages hold."""
    cdef shmq_packed read
    cdef uint64_t records = 0
    for message in messages:
        _read_records(message, &read)
        records += read.count
    return records


cpdef uint32_t milliseconds(str what, seconds) except? 0:
    """Convert ``seconds`` to the wire's unit: whole milliseconds, rounded up.

    Raises TypeError and InvalidOption like the settlements of a local queue, and InvalidOption
    for more than 32 bits hold.
    """
    cdef int64_t ms = (_span_ns(what, seconds) + 999999) // 1000000
    if ms >= SHMQ_FRAME_FOREVER:
        raise _errors.InvalidOption(
            f"{what}={seconds} s is out of range: 0 to 4294967 s in a remote queue")
    return <uint32_t>ms


cdef class AckFlusher:
    """Sends buffered acknowledgements in time: see client/remote/ack_flusher.py."""

    cdef public bint awake       # it now checks every `Acks` by itself

    def wake(self):
        """Called when an acknowledgement is buffered while the flusher is not awake."""
        raise NotImplementedError


cdef int64_t LATE = 50000000  # ns: an acknowledgement that rides arrives sooner than that
cdef int64_t QUICK = 1000000  # ns: hand-outs this close together count as in a row


@cython.final
cdef class Acks:
    """The buffered acknowledgements of one consumer's messages.

    Separate from the consumer, so that messages still in use do not keep the consumer alive.
    """

    #| wire: Wire | None
    cdef public Wire wire
    cdef AckFlusher flusher
    cdef public bint ended
    cdef public uint32_t stream  # the subscription whose credit they return
    cdef public int in_hand      # its messages that the application has not settled yet
    cdef uint32_t reported       # how many of its messages the server knows were delivered
    #| refused: list[int]
    cdef public list refused     # receipts whose lease had ended already
    #| report: Callable[[Answer], object] | None
    cdef readonly object report  # called with a refusal of those that ride; see Wire.ride
    #| last: Answer | None
    cdef readonly Answer last    # of the last request that was sent
    cdef readonly int count      # buffered and not sent
    cdef int most
    cdef int64_t since
    cdef uint64_t *receipts
    cdef object __weakref__

    def __cinit__(self, int most, AckFlusher flusher not None,
                  report: Callable[[Answer], object] | None = None):
        self.most = most
        self.report = report
        self.flusher = flusher
        self.refused = []
        self.receipts = <uint64_t *>malloc(most * sizeof(uint64_t))
        if self.receipts == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.receipts)

    # Buffers the acknowledgement; returns false if the lease may be over, which only the server can
    # tell.
    cdef bint _add(self, RemoteMessage message) except -1:
        cdef int64_t now = _real_now()
        if (self.ended or self.count >= self.most or self.wire is not message.wire
                or self.wire.is_broken or self.wire.generation != fork_generation
                or now + (0 if self.report is None else LATE) >= message.deadline):
            return False
        if not self.count:
            self.since = now
            if not self.flusher.awake:
                self.flusher.wake()
        message.settled_at = now
        self.receipts[self.count] = message.lease
        self.count += 1
        if self.count == self.most:
            self.send()
        return True

    def begin(self, uint32_t stream):
        """Switch to a subscription that has just begun."""
        self.stream = stream
        self.in_hand = 0
        self.reported = 0

    cpdef bint is_due(self):
        """Whether the oldest acknowledgement has waited long enough."""
        return self.count > 0 and _real_now() - self.since >= FLUSH_AFTER

    cpdef int send(self) except -1:
        """Send the buffered acknowledgements, as far as possible without waiting."""
        self.put()
        if self.wire is not None:
            _send_output(self.wire, 0)
        return 0

    def drop(self):
        """Forget the buffered acknowledgements: their leases are gone."""
        self.count = 0
        self.last = None
        self.in_hand = 0

    cpdef int put(self) except -1:
        """Append the buffered acknowledgements to the connection's output."""
        cdef int i, count
        cdef Answer answer
        cdef unsigned char *at
        if not self.count or self.wire is None:
            return 0
        if self.wire.is_broken or self.wire.generation != fork_generation:
            self.count = 0
            return 0
        # Before the check: an allocation may run other threads, which buffer here, too.
        answer = self.wire._new_answer()
        answer.acks = self
        count, self.count = self.count, 0  # none of them rides with this request itself
        if not count:
            return 0
        try:
            at = self.wire._request(answer, SHMQ_T_ACK, True, 8 * count)
        except MemoryError:
            self.count = count
            raise
        for i in range(count):
            at = shmq_store64(at, self.receipts[i])
        self.last = answer
        return 0


cdef class RemoteConsumer:
    """The speed-critical part of the iterator over messages that the server sends ahead."""

    cdef readonly Acks acks
    cdef public list ahead       # prefetched messages: ahead[at:]
    cdef public Py_ssize_t at
    cdef public bint ended
    cdef int64_t fresh           # ns of its lease that a message needs left at its hand-out
    cdef int most_told           # limit and current size of one report of hand-outs
    cdef int chunk
    cdef int64_t told_at
    cdef object __weakref__

    def __cinit__(self):
        self.ahead = []

    def prepare(self, Acks acks, double lease, int most_told):
        """Buffer acknowledgements in ``acks``; leases last ``lease`` seconds.

        One report to the server marks up to ``most_told`` messages as delivered.
        """
        self.acks = acks
        self.most_told = most_told
        self.fresh = _ns(lease) - _ns(lease) // 8

    def __iter__(self):
        return self

    cdef RemoteMessage _quickly(self):
        cdef RemoteMessage message
        cdef int64_t now
        if self.at >= len(self.ahead) or self.ended or self.acks.wire is None:
            return None
        now = _real_now()
        message = <RemoteMessage>self.ahead[self.at]
        if (message.deadline - now < self.fresh or self.acks.wire.is_broken
                or self.acks.wire.generation != fork_generation
                or (self.acks.count and now - self.acks.since >= FLUSH_AFTER)):
            return None
        return self._hand_out(message)

    # Hands out the message at the front; None if the connection turns out to have ended.
    cdef RemoteMessage _hand_out(self, RemoteMessage message):
        if message.stream == self.acks.stream:
            if <int32_t>(message.number - self.acks.reported) > 0 and self.acks.wire.extended:
                self._tell(message)
                if self.acks.wire.is_broken:
                    return None
            self.acks.in_hand += 1
        self.ahead[self.at] = None
        self.at += 1
        message.in_hand = True
        return message

    # Tells the server that the message is delivered, before the application gets it: the delivery
    # must count even if the message kills the application. While messages are delivered in quick
    # succession, one report covers several first deliveries, so a death can count some messages
    # that the application has not seen, each at most once. Buffered acknowledgements are sent
    # first.
    cdef int _tell(self, RemoteMessage message) except -1:
        cdef int64_t now = _real_now()
        cdef Py_ssize_t behind = self.at + 1, last = behind
        self.chunk = min(2 * self.chunk, self.most_told) if now - self.told_at < QUICK else 1
        self.told_at = now
        if message.delivery_count == 1:
            while last - behind + 1 < self.chunk and last < len(self.ahead) and \
                    (<RemoteMessage>self.ahead[last]).delivery_count == 1:
                last += 1
        if last > behind:
            message = <RemoteMessage>self.ahead[last - 1]
        self.acks.reported = message.number
        self.acks.put()
        return self.acks.wire._say_handed(self.acks.stream, self.acks.reported)

    def __next__(self) -> api.Message:
        message = self._quickly()
        if message is None:
            message = self._next(True)
            if message is None:
                self.close()
                raise StopIteration
        return message

    def quickly(self) -> Any:
        """The next message if it is prefetched and its lease is fresh, else None."""
        return self._quickly()

    def hand_out(self) -> RemoteMessage | None:
        """Hand out the message at the front; None if the connection has just ended."""
        return self._hand_out(<RemoteMessage>self.ahead[self.at])

    @property
    def waiting(self) -> list[RemoteMessage]:
        """The messages that were not delivered yet."""
        return self.ahead[self.at:]

    def is_fresh(self) -> bool:
        """Whether most of the lease of the message at the front is left."""
        cdef RemoteMessage message = self.ahead[self.at]
        return message.deadline - _real_now() >= self.fresh

    def renewed(self, refused: Iterable[int], double lease):
        """Note that the leases of the waiting messages were just renewed, except the refused ones."""
        cdef RemoteMessage message
        cdef int64_t deadline = _real_now() + _ns(lease)
        gone = set(refused)
        kept = []
        for message in self.ahead[self.at:]:
            if message.lease not in gone:
                message.deadline = deadline
                kept.append(message)
        self.ahead, self.at = kept, 0


@cython.final
cdef class RemoteBodies:
    """See shmq.api.Bodies, over the iterator over messages of a queue of a server."""

    cdef RemoteConsumer consumer
    cdef RemoteMessage message   # in hand
    cdef object __weakref__

    def __cinit__(self, RemoteConsumer consumer not None):
        self.consumer = consumer

    # An iterator that is dropped cannot know how the work on its last body ended.
    def __del__(self):
        if self.message is not None:
            drop_in_hand(self.message)

    def __iter__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self._ack()
        finally:
            self.close()

    def __repr__(self):
        return repr(self.consumer).replace("<Consumer", "<Bodies", 1)

    # Acknowledges the message in hand. If its lease has expired, none is in hand afterwards.
    cdef int _ack(self) except -1:
        cdef RemoteMessage message = self.message
        if message is None or message.wire.generation != fork_generation:
            return 0
        self.message = None
        message.in_hand = False  # if this fails, the lease has expired
        message.ack()
        return 0

    def flush(self):
        """See shmq.api.Bodies.flush."""
        self.consumer.flush()

    def close(self):
        """See shmq.api.Bodies.close."""
        cdef RemoteMessage message = self.message
        self.message = None
        if message is not None and message.wire.generation == fork_generation:
            message.in_hand = False
            try:
                message.nack()
            except _errors.ShmqError:
                pass  # its lease has expired, or ends with the connection
        self.consumer.close()

    def __next__(self) -> Any:
        cdef RemoteMessage message
        if self.message is not None:
            self._ack()
        message = self.consumer._quickly()
        if message is None:
            message = next(self.consumer)
        self.message = message
        if message.meta is None:
            return message.raw
        try:
            return message.body
        except BaseException:
            self.message = None
            drop_in_hand(message)
            raise


def drop_in_hand(message: object) -> None:
    """Return a message that the application had, without waiting for an answer.

    It comes back with the queue's back-off. If its lease has expired, nothing is done.
    """
    cdef RemoteMessage remote
    cdef Message local
    if type(message) is RemoteMessage:
        remote = message
        remote.in_hand = False
        if not remote._settled and is_leased(remote):
            remote._after_settling(BY_NACK)
            remote.wire._nack(remote.lease)
    elif type(message) is Message:
        local = message
        if not local._settled and local.handle.generation == fork_generation and local.handle.open_:
            local._settled = BY_NACK
            local.settled_at = shmq_now()
            with nogil:
                _nack_to_end(local.handle, local.lease)
