# One connection to a server. Requests are sent from one buffer; each receive takes in as many
# whole frames as there are.
#
# The GIL guards the state. Waiting threads take turns in two roles: one sends (`sending`), one
# reads for all (`reading`). Only they touch the socket, and they do so without the GIL. A thread
# that only waits is woken when its answer has come, or when it is to read.

cdef enum:
    RECV_ROOM = 1 << 16          # the least room for a recv
    KEEP_ROOM = 4 << 20          # the most memory that an empty buffer keeps
    MOST_SENT_APART = 1 << 16    # a body from this size on is sent without copying
    IGNORED = 0xFFFFFFFF         # message id of a request whose answer is ignored
    RUN_ROW = 20                 # bytes of a message in a run: sequence, receipt, slot

cdef double TAKING_BACK = 5.0         # s: how long an interrupted CONSUME may take to end
cdef int64_t RECV_SLICE = 250000000   # ns: the receive timeout of the socket
cdef int64_t IDLE_LOOK = 1000000   # ns: a connection idle for longer is checked before use


@cython.final
cdef class Wire:
    """The frames of one connection. Any number of threads and event loops may share it."""

    cdef object socket
    cdef object tls              # encrypts and decrypts; None: plain bytes
    cdef object queue            # a weak reference to the queue object that settles messages
    cdef Acks riding             # buffered acknowledgements that precede the next request
    cdef bytes name              # of the queue that requests name
    cdef int fd
    cdef readonly bint is_broken
    cdef readonly bint is_confused   # the peer has violated the protocol
    cdef readonly int fatal      # the status that the server closed the connection with, or 0
    #| problem: str | None
    cdef readonly str problem
    cdef public bint extended    # the server has more than the operations of every server
    cdef public uint32_t max_frame
    cdef public int holds        # event loops that watch the socket
    cdef dict calls
    cdef list sleepers           # answers that threads sleep for
    cdef list answered           # answers whose `notify` is to be called
    cdef list strays             # receipts of messages that no caller waits for any more
    cdef uint64_t generation
    cdef uint64_t written        # bytes of requests so far
    cdef uint64_t gone           # of these, bytes given to the kernel
    cdef int64_t used_at
    cdef int64_t drained_at      # messages received after this were leased after it
    cdef uint32_t last_id
    cdef int streams
    cdef bint sending, reading, ending, is_closed
    cdef shmq_spin_rate spin
    cdef shmq_buffer out, going, coming
    cdef object __weakref__

    def __cinit__(self, socket, bytes name, queue: Callable[[], Any] | None, tls=None):
        self.socket = socket
        self.fd = socket.fileno()
        self.name = name
        self.queue = queue
        self.tls = tls
        self.calls = {}
        self.sleepers = []
        self.answered = []
        self.strays = []
        self.generation = fork_generation
        self.max_frame = SHMQ_FRAME_MAX
        self.used_at = self.drained_at = _real_now()
        shmq_spin_init(&self.spin, LEAST_SPIN_OF_RECV)

    def __dealloc__(self):
        shmq_buffer_free(&self.out)
        shmq_buffer_free(&self.going)
        shmq_buffer_free(&self.coming)

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent on it, as far as the client can tell."""
        if self.is_broken or self.generation != fork_generation:
            return False
        if _real_now() - self.used_at > IDLE_LOOK and not self.reading:
            self.read_now()
        return not self.is_broken

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made by this process, not by its parent before a fork."""
        return self.generation == fork_generation

    @property
    def has_output(self) -> bool:
        """Whether any output is left to send."""
        return self.out.start < self.out.end or self.going.start < self.going.end

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self.fd

    # ---- requests ----

    cdef Answer _new_answer(self):
        cdef Answer answer = Answer.__new__(Answer)
        self.last_id += 1
        if self.last_id == IGNORED:
            self.last_id = 1
        while self.last_id in self.calls:  # a subscription older than 2^32 requests
            self.last_id += 1
        answer.id = self.last_id
        answer.status = -1
        return answer

    # Begins a request: the place of its payload behind the name. Its answer is expected from now
    # on.
    cdef unsigned char *_request(self, Answer answer, uint8_t type, bint named,
                                 uint64_t rest) except NULL:
        cdef const char *name = PyBytes_AS_STRING(self.name) if named else NULL
        cdef uint64_t before
        cdef unsigned char *at
        if rest > 0xFFFFF000:
            raise MemoryError
        if self.riding is not None and self.riding.count:
            self.riding.put()
        before = self.out.end - self.out.start
        self.calls[answer.id] = answer
        at = shmq_request(&self.out, type, answer.id, name,
                          <uint16_t>PyBytes_GET_SIZE(self.name), <uint32_t>rest)
        if at == NULL:
            del self.calls[answer.id]
            raise MemoryError
        self.written += self.out.end - self.out.start - before
        answer.end = self.written
        return at

    def request(self, int type, bint named, bytes rest) -> Answer:
        """Write a request of any type; if ``named``, the queue's name precedes ``rest``."""
        cdef Answer answer = self._new_answer()
        cdef unsigned char *at = self._request(answer, type, named, PyBytes_GET_SIZE(rest))
        memcpy(at, PyBytes_AS_STRING(rest), PyBytes_GET_SIZE(rest))
        return answer

    cdef Answer _produce(self, bytes meta, const char *body, uint64_t size, uint8_t flags):
        cdef Answer answer = self._new_answer()
        cdef uint64_t head = 1
        cdef unsigned char *at
        if meta is not None:
            head += 4 + PyBytes_GET_SIZE(meta)
        at = self._request(answer, SHMQ_T_PRODUCE, True, head + size)
        at[0] = flags | (SHMQ_FLAG_PROPERTIES if meta is not None else 0)
        at += 1
        if meta is not None:
            at = shmq_store32(at, <uint32_t>PyBytes_GET_SIZE(meta))
            memcpy(at, PyBytes_AS_STRING(meta), PyBytes_GET_SIZE(meta))
            at += PyBytes_GET_SIZE(meta)
        memcpy(at, body, size)
        return answer

    def produce(self, bytes meta: bytes | None, body, bint durable=False) -> Answer:
        """Write a PRODUCE: packed properties or None, and a buffer.

        ``durable``: the answer comes once the message is on disk.
        """
        cdef Py_buffer buffer
        cdef uint8_t flags = SHMQ_FLAG_DURABLE if durable else 0
        if type(body) is bytes:
            return self._produce(meta, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), flags)
        PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE)
        try:
            return self._produce(meta, <const char *>buffer.buf, buffer.len, flags)
        finally:
            PyBuffer_Release(&buffer)

    def put(self, bytes meta: bytes | None, body, timeout: float) -> Put | Answer:
        """Send a PRODUCE and wait: returns the put, or the answer that refuses it."""
        cdef Answer answer = self.produce(meta, body)
        self.wait(answer, timeout)
        if answer.done and not answer.lost:
            if answer.status == SHMQ_S_OK:
                return _new_put(answer._number(), False)
            if answer.status == SHMQ_S_DUPLICATE:
                return _new_put(answer._number(), True)
        return answer

    def produce_batch(self, list items, Py_ssize_t start, uint64_t most,
                      bint durable=False) -> tuple[Answer, int]:
        """Write a PRODUCE_BATCH of items[start:], as many as fit into ``most`` bytes of payload.

        An item is bytes, or a tuple of packed properties or None and a buffer. ``durable``: the
        answer comes once they are on disk. Returns the answer and how many items are in it, which
        is at least one.
        """
        cdef Py_ssize_t end = start, count = len(items)
        cdef uint64_t size = 2 + PyBytes_GET_SIZE(self.name) + 5, item_size
        cdef Answer answer = self._new_answer()
        cdef unsigned char *at
        while end < count:
            item_size = _item_bytes(items[end])
            if end > start and size + item_size > most:
                break
            size += item_size
            end += 1
        at = self._request(answer, SHMQ_T_PRODUCE_BATCH, True,
                           size - 2 - PyBytes_GET_SIZE(self.name))
        at[0] = SHMQ_FLAG_DURABLE if durable else 0
        at = shmq_store32(at + 1, <uint32_t>(end - start))
        for i in range(start, end):
            at = _write_item(at, items[i])
        return answer, end - start

    def consume(self, uint32_t most, uint32_t wait_ms, double lease,
                bytes where: bytes | None = None) -> Answer:
        """Write a CONSUME; ``where`` is a filter expression in UTF-8."""
        cdef Answer answer = self._new_answer()
        cdef unsigned char *at = self._request(answer, SHMQ_T_CONSUME, True, 8 + _asking(where))
        at = shmq_store32(at, most)
        at = shmq_store32(at, wait_ms)
        _ask_for(at, where)
        answer.messages = []
        answer.queue = self.queue()
        answer.lease = _ns(lease)
        answer.begun = _real_now()
        return answer

    def get(self, uint32_t wait_ms, double lease, Acks acks: Acks | None,
            timeout: float) -> RemoteMessage | Answer:
        """Send a CONSUME of one message and wait: returns the message, or the answer without one.

        The answer may be not ready: see `wait`. ``acks``: see `ride`.
        """
        cdef Answer answer = self.consume(1, wait_ms, lease)
        cdef RemoteMessage message
        if acks is not None:
            self.ride(answer, acks)
        try:
            self.wait(answer, timeout)
        except BaseException as error:
            self.forget(answer)
            if isinstance(error, KeyboardInterrupt):
                # The server may still deliver to it: that is returned at once.
                self.take_back(answer, wait_ms / 1000 + TAKING_BACK)
            raise
        if answer.lost or not answer.messages:
            return answer
        message = answer.messages[0]
        message.in_hand = True
        return message

    def peek(self, uint32_t limit, bytes where=b"") -> Answer:
        """Write a PEEK; ``where`` is a filter expression in UTF-8."""
        cdef Answer answer = self._new_answer()
        cdef unsigned char *at = self._request(answer, SHMQ_T_PEEK, True, 4 + len(where))
        memcpy(shmq_store32(at, limit), PyBytes_AS_STRING(where), len(where))
        answer.messages = []
        answer.queue = self.queue()
        return answer

    def subscribe(self, uint32_t credit, double lease, Acks acks: Acks | None,
                  bytes where: bytes | None = None) -> Answer:
        """Write a SUBSCRIBE whose messages buffer their acknowledgements in ``acks``."""
        cdef Answer answer = self._new_answer()
        cdef bint tells = self.extended and acks is not None
        cdef size_t size = _asking(where)
        cdef unsigned char *at = self._request(answer, SHMQ_T_SUBSCRIBE, True, 4 + size + tells)
        at = shmq_store32(at, credit)
        _ask_for(at, where, SHMQ_FLAG_TELLS if tells else 0)
        if tells:
            at[size] = 1
        answer.messages = []
        answer.queue = self.queue()
        answer.acks = acks
        answer.lease = _ns(lease)
        answer.streams = True
        self.streams += 1
        return answer

    # Reports that the first `count` messages of the subscription are delivered, before the
    # application gets them; sends as far as possible without waiting.
    cdef int _say_handed(self, uint32_t stream, uint32_t count) except -1:
        cdef unsigned char *at = shmq_request(&self.out, SHMQ_T_HANDED, stream, NULL, 0, 4)
        if at == NULL:
            raise MemoryError
        shmq_store32(at, count)
        self.written += SHMQ_FRAME_HEADER + 4
        return _send_output(self, 0)

    def unsubscribe(self, Answer stream) -> Answer:
        """Write the UNSUBSCRIBE of a subscription."""
        cdef Answer answer = self._new_answer()
        shmq_store32(self._request(answer, SHMQ_T_UNSUBSCRIBE, False, 4), stream.id)
        return answer

    def gather(self, Answer consume, Acks acks):
        """Let the messages of a CONSUME buffer their acknowledgements in ``acks``."""
        consume.acks = acks

    def ride(self, Answer asked, Acks acks):
        """The same; the acknowledgements also leave with the next request of any kind."""
        asked.acks = acks
        if acks.wire is not self:
            acks.drop()
            acks.wire = self
        self.riding = acks

    def settle(self, int type, receipts: int | Iterable[int],
               argument: int | None = None) -> Answer:
        """Write an ACK, NACK, REJECT, EXTEND or RETURN of a receipt or a list of them.

        A RETURN without an ``argument`` becomes a NACK if the server does not know it.
        """
        cdef Answer answer = self._new_answer()
        cdef uint32_t word = 0 if argument is None else argument
        cdef uint64_t receipt
        cdef unsigned char *at
        if type == SHMQ_T_RETURN and argument is None and not self.extended:
            type, argument = SHMQ_T_NACK, 0
        if isinstance(receipts, int):
            receipts = (receipts,)
        numbers = [(<object>each) for each in receipts]
        at = self._request(answer, type, True, 8 * len(numbers) + (argument is not None) * 4)
        if argument is not None:
            at = shmq_store32(at, word)
        for receipt in numbers:
            at = shmq_store64(at, receipt)
        return answer

    def ack(self, uint64_t receipt, timeout: float) -> Answer | None:
        """Send an ACK of one receipt and wait: returns None, or the answer if it is not OK.

        The answer may be not ready: see `wait`.
        """
        cdef Answer answer = self._new_answer()
        shmq_store64(self._request(answer, SHMQ_T_ACK, True, 8), receipt)
        try:
            self.wait(answer, timeout)
        except BaseException:
            self.forget(answer)
            raise
        return None if answer.status == SHMQ_S_OK else answer

    def settle_run(self, int type, bytes receipts, Py_ssize_t start, Py_ssize_t end,
                   argument: int | None = None) -> Answer:
        """Write an ACK, EXTEND or RETURN of receipts[start:end], numbers of 8 bytes each."""
        cdef Answer answer = self._new_answer()
        cdef const uint64_t *each = <const uint64_t *>PyBytes_AS_STRING(receipts)
        cdef unsigned char *at
        cdef Py_ssize_t i
        at = self._request(answer, type, True, 8 * (end - start) + (argument is not None) * 4)
        if argument is not None:
            at = shmq_store32(at, argument)
        for i in range(start, end):
            at = shmq_store64(at, each[i])
        return answer

    def lease_run(self, uint32_t most, uint64_t max_bytes, uint32_t ms) -> Answer:
        """Write a LEASE_RUN."""
        cdef Answer answer = self._new_answer()
        cdef unsigned char *at = self._request(answer, SHMQ_T_LEASE_RUN, True, 16)
        at = shmq_store32(at, most)
        at = shmq_store64(at, max_bytes)
        shmq_store32(at, ms)
        answer.runs = True
        return answer

    def lease_again(self, uint32_t ms, bytes sequences, Py_ssize_t start, Py_ssize_t end) -> Answer:
        """Write a LEASE_AGAIN of sequences[start:end], numbers of 8 bytes each."""
        cdef Answer answer = self._new_answer()
        cdef const uint64_t *each = <const uint64_t *>PyBytes_AS_STRING(sequences)
        cdef unsigned char *at = self._request(answer, SHMQ_T_LEASE_AGAIN, True,
                                               4 + 8 * (end - start))
        cdef Py_ssize_t i
        at = shmq_store32(at, ms)
        for i in range(start, end):
            at = shmq_store64(at, each[i])
        answer.runs = True
        return answer

    def read_run(self, uint32_t max_bytes, bytes slots, bytes sequences, Py_ssize_t start,
                 Py_ssize_t end) -> Answer:
        """Write a READ_RUN of the messages from ``start`` to ``end`` of a run."""
        cdef Answer answer = self._new_answer()
        cdef const uint64_t *which = <const uint64_t *>PyBytes_AS_STRING(sequences)
        cdef const uint32_t *where = <const uint32_t *>PyBytes_AS_STRING(slots)
        cdef unsigned char *at = self._request(answer, SHMQ_T_READ_RUN, True,
                                               4 + 12 * (end - start))
        cdef Py_ssize_t i
        at = shmq_store32(at, max_bytes)
        for i in range(start, end):
            at = shmq_store64(at, which[i])
            at = shmq_store32(at, where[i])
        return answer

    # Returns messages delivered to no caller. Ignores the answer.
    cdef int _give_back(self, list receipts) except -1:
        cdef Answer answer = self.settle(SHMQ_T_RETURN, receipts)
        del self.calls[answer.id]
        return 0

    # Returns a message that the application had, with the queue's back-off. Sends as far as possible
    # without waiting, and ignores the answer.
    cdef int _nack(self, uint64_t receipt) except -1:
        cdef Answer answer = self.settle(SHMQ_T_NACK, receipt, <uint32_t>SHMQ_FRAME_FOREVER)
        del self.calls[answer.id]
        return _send_output(self, 0)

    # ---- waiting ----

    def wait(self, Answer answer, timeout: float | None) -> bool:
        """Send, and read until the answer is ready; whether it was within ``timeout`` seconds.

        None waits without limit. If the connection breaks, the answer is ready and lost. An
        exception from a signal handler leaves the connection intact and the answer unread: see
        `forget`.
        """
        cdef int64_t until = FOREVER
        if timeout is not None and timeout < 1e9:
            until = _real_now() + <int64_t>(timeout * 1e9)
        _await_answer(self, answer, until)
        return answer._is_ready()

    def lose(self, Answer answer):
        """Note that the connection broke before the request was written, so it was never sent."""
        self.calls.pop(answer.id, None)
        answer.lost = answer.done = True

    def forget(self, Answer answer):
        """Stop waiting for the answer. What is delivered to it later returns to the queue."""
        if answer.streams and self.calls.pop(answer.id, None) is not None:
            self.streams -= 1
        elif answer.runs:
            answer.strayed = True
            if answer.done and not answer.lost:
                _stray_run(self, answer)
        else:
            self.calls.pop(answer.id, None)
        answer.notify = None

    def take_back(self, Answer consume, double seconds):
        """Wait up to ``seconds`` for a forgotten CONSUME, and return what it delivers."""
        if self.is_broken or consume.done:
            self.give_back(consume.messages)
            return
        self.calls[consume.id] = consume
        try:
            _await_answer(self, consume, _real_now() + <int64_t>(seconds * 1e9))
        finally:
            self.calls.pop(consume.id, None)
            self.give_back(consume.messages)

    def give_back(self, list messages):
        """Return messages that the application has not seen, as far as possible without waiting."""
        if messages and not self.is_broken:
            self._give_back(receipts_of(messages))
            _send_output(self, 0)

    # ---- sending ----

    def send(self) -> bool:
        """Send as much as possible without waiting; whether something is left."""
        _send_output(self, 0)
        return self.has_output and not self.is_broken

    # ---- receiving: only by the thread that has `reading` ----

    def read_now(self):
        """Handle what has arrived, without waiting; nothing if another thread reads already."""
        if self.reading or self.is_broken:
            return
        self.reading = True
        try:
            _receive_input(self, 0)
        finally:
            _stop_reading(self)

    # ---- the end ----

    # The peer has violated the protocol, and would again.
    cdef int _violated(self, str problem) except -1:
        self.is_confused = True
        return self._break(problem)

    # All unanswered requests are lost. A server that said why it ends has carried out none of them.
    cdef int _break(self, str problem) except -1:
        cdef Answer answer
        if self.is_broken:
            return 0
        self.is_broken = True
        self.problem = problem
        self.riding = None
        calls, self.calls = self.calls, {}
        self.streams = 0
        for answer in calls.values():
            answer.lost = answer.done = True
            _wake_answer(self, answer)
        if not self.reading:
            _notify_waiters(self)
        return 0

    def may_have_arrived(self, Answer answer) -> bool:
        """Whether the server may have carried out the request of a lost answer."""
        return not self.fatal and self.gone >= answer.end

    def farewell(self, double timeout):
        """Send everything, half-close, and return when the server has closed, too.

        The server has carried out all requests then, and the connection's leases have returned.
        """
        cdef Answer end = self._new_answer()
        cdef int64_t until = _real_now() + <int64_t>(timeout * 1e9)
        _send_output(self, until)
        if not self.is_broken:
            self.calls[end.id] = end
            try:
                self.socket.shutdown(1)
            except OSError:
                return  # it has ended already
            _await_answer(self, end, until)

    def close(self, problem: str = "the connection was closed"):
        """End the connection: its leases return to the queue. May be called again."""
        if self.generation == fork_generation and not self.is_closed:
            try:
                self.socket.shutdown(2)
            except OSError:
                pass  # it has ended already
        self.is_closed = True
        self._break(problem)
        self._close_if_idle()

    # Closes the socket, but not while a thread is in a system call on it or event loops watch it.
    cdef int _close_if_idle(self) except -1:
        if self.generation != fork_generation or not (self.reading or self.sending or self.holds):
            self.socket.close()
        return 0

    def let_go(self):
        """Note that one event loop has stopped watching the connection."""
        self.holds -= 1
        if self.is_closed:
            self._close_if_idle()
