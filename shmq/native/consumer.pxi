# The iterator that prefetches leases.

# How long acknowledgements are buffered, in ns, counted from the hand-out of a message: after long
# work on it, that it was done is not buffered while the next message is worked on.
cdef int64_t FLUSH_AFTER = 10000000


# The acknowledgements that a consumer's messages buffer. It is separate from the consumer, so that
# messages still in use do not keep the consumer and its prefetched leases alive.
@cython.no_gc_clear
@cython.final
cdef class _AckBuffer:

    cdef Handle handle
    cdef uint64_t *acks
    cdef int room
    cdef int count
    cdef int64_t handed          # when the consumer handed out the last message
    cdef int64_t since           # the same, as the first of them was buffered
    cdef bint ended
    cdef bint idle               # the consumer has nothing and may sleep: no call of it will flush
    cdef uint64_t generation

    def __cinit__(self, Handle handle, int room):
        self.handle = handle
        self.room = room
        self.generation = fork_generation
        self.acks = <uint64_t *>malloc(room * sizeof(uint64_t))
        if self.acks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.acks)

    # Acknowledges the message with that receipt of the core; returns the time in monotonic ns.
    cdef int64_t add(self, uint64_t lease) except? -1:
        cdef int64_t now
        if self.ended or self.idle or self.generation != fork_generation:
            return _settle(self.handle, ACK, lease, 0)
        if self.count == self.room:
            self.flush()  # first: if this fails, the message is not acknowledged
        now = shmq_time(&self.handle.q)
        if shmq_mark_acked(&self.handle.q, lease, now) != SHMQ_OK:
            raise _stale(self.handle, lease)
        if not self.count:
            self.since = self.handed
        self.acks[self.count] = lease
        self.count += 1
        return now

    # Waits for the lock like a get with `block` and `timeout`.
    cdef int flush(self, block=False, timeout=None) except -1:
        cdef int64_t until = UNKNOWN
        if self.count and self.generation == fork_generation:
            _lock_until(self.handle, False, SHMQ_NOT_EMPTY, block, timeout, &until)
            self.flush_locked()
            _unlock(self.handle)
            self.handle._after()
        return 0

    # Skips slots that another operation has freed already.
    cdef void flush_locked(self) noexcept nogil:
        cdef int i
        for i in range(self.count):
            shmq_finish(&self.handle.q, self.acks[i])
        self.count = 0


@cython.no_gc_clear
@cython.final
cdef class Consumer:
    """See shmq.api.Consumer.

    It is for one thread at a time, but its messages may be settled from any.
    """

    cdef Handle handle
    cdef _AckBuffer gatherer
    cdef shmq_view *views
    cdef int prefetch
    cdef int held                # prefetched: views[next:held]
    cdef int next
    cdef object timeout
    cdef Filter filter           # None: all messages
    cdef bint block
    cdef bint ended
    cdef uint64_t generation
    cdef object __weakref__

    def __cinit__(self, Handle handle, int prefetch, timeout, block, Filter filter):
        self.handle = handle
        self.filter = filter
        self.gatherer = _AckBuffer.__new__(_AckBuffer, handle, prefetch)
        self.prefetch = prefetch
        self.timeout = timeout
        self.block = block
        self.generation = fork_generation
        self.views = <shmq_view *>malloc(prefetch * sizeof(shmq_view))
        if self.views == NULL:
            raise MemoryError

    def __dealloc__(self):
        if (self.views != NULL and not self.ended and self.handle.open_
                and self.generation == fork_generation):
            self.gatherer.ended = True
            with nogil:
                if _lock_to_end(self.handle):
                    self.gatherer.flush_locked()
                    self._give_back_locked(shmq_now())
                    _unlock(self.handle)
        free(self.views)

    def __iter__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def __repr__(self):
        what = "closed" if self.ended else f"{self.held - self.next} leased ahead"
        return f"<Consumer of {self.handle.name!r}: {what}>"

    cdef void _give_back_locked(self, int64_t now) noexcept nogil:
        while self.next < self.held:
            shmq_return(&self.handle.q, self.views[self.next].receipt, now)
            self.next += 1

    def flush(self):
        """See shmq.api.Consumer.flush."""
        self.gatherer.flush()

    def close(self):
        """See shmq.api.Consumer.close."""
        if self.ended:
            return
        self.ended = self.gatherer.ended = True
        if not self.handle.open_ or self.generation != fork_generation:
            return
        try:
            _lock(self.handle)
        except _errors.QueueDeleted:
            return
        except _errors.LockTimeout:
            self.ended = self.gatherer.ended = False  # to be closed again, or with the handle
            raise
        self.gatherer.flush_locked()
        self._give_back_locked(shmq_now())
        _unlock(self.handle)
        self.handle._after()

    # ---- iteration ----

    # One critical section: flushes, then prefetches. SHMQ_OK if there is a message.
    cdef int _refill(self, bint wait, int round_, int64_t *until) except -1:
        cdef int status = SHMQ_OK
        cdef int64_t now
        self.handle._consume()
        _lock_until(self.handle, round_ > 0 or not wait, SHMQ_NOT_EMPTY, wait and self.block,
                                self.timeout, until)
        now = shmq_time(&self.handle.q)
        self.gatherer.flush_locked()
        self.next = self.held = 0
        while self.held < self.prefetch:
            status = shmq_lease(&self.handle.q, now, False, &self.views[self.held])
            if status != SHMQ_OK:
                break
            self.held += 1
        if self.held:
            status = SHMQ_OK
        elif status == SHMQ_EMPTY and round_ == 1:
            shmq_fall_asleep(&self.handle.q, SHMQ_NOT_EMPTY)
        self.gatherer.idle = not self.held
        _unlock(self.handle)
        return status

    # Flushes, then prefetches messages that match the filter; returns how many. If a signal handler
    # has closed the consumer in the meantime, they are returned to the queue.
    def _select(self):
        if self.ended:
            return 0
        self.next = self.held = 0
        self.held = _select_run(self.handle, self.filter, self.views, self.prefetch, False,
                                self.gatherer)
        self.gatherer.idle = not self.held
        if self.gatherer.idle:
            self.gatherer.flush()  # what was acknowledged during the search
        if self.ended:
            _lock_gets(self.handle)
            self._give_back_locked(shmq_now())
            _unlock(self.handle)
            return 0
        return self.held

    # Whether there are more messages, after a wait if `wait` allows one.
    cdef bint _get_more(self, bint wait) except -1:
        cdef int status, round_ = 0
        cdef int64_t until = UNKNOWN
        if self.filter is not None and not wait:
            return self._select() > 0
        if self.filter is not None:
            return self.handle._wait_filtered(self._select, self.block, self.timeout) > 0
        while True:
            status = self._refill(wait, round_, &until)
            if status == SHMQ_OK:
                self.handle._after()
                return True
            if status != SHMQ_EMPTY:
                raise _error(self.handle, status)
            if not wait or not _may_wait(self.handle, 
                    SHMQ_NOT_EMPTY, self.block, self.timeout, &until, &round_) or self.ended:
                return False

    # A lease counts from the hand-out, not from the prefetch: if more than an eighth of it is over,
    # it is renewed, with the leases of all messages after it.
    cdef int _renew(self, bint wait) except -1:
        cdef int64_t now, lease, until = UNKNOWN
        cdef int i
        _lock_until(self.handle, False, SHMQ_NOT_EMPTY, wait and self.block, self.timeout, &until)
        now, lease = shmq_now(), shmq_policies_now(self.handle.q.h).visibility
        for i in range(self.next, self.held):
            if shmq_extend(&self.handle.q, self.views[i].receipt, lease, now) == SHMQ_OK:
                self.views[i].deadline = now + lease
        _unlock(self.handle)
        return 0

    # Makes views[next] the next message, and its lease fresh; false if there is none. `what` is the
    # name of the method that was called.
    cdef bint _advance(self, bint wait, str what, int64_t *now) except -1:
        cdef int64_t lease
        if self.generation != fork_generation:
            raise _errors.ShmqError(f"a consumer does not survive a fork: call {what}() again")
        if self.ended:
            return False
        if not self.handle.open_:
            raise _closed_error(self.handle)
        now[0] = shmq_time(&self.handle.q)
        if self.gatherer.count and now[0] - self.gatherer.since >= FLUSH_AFTER:
            self.gatherer.flush(wait and self.block, self.timeout)
        if self.next >= self.held:
            if not self._get_more(wait):
                _found_nothing(self.handle)
                return False
            now[0] = shmq_time(&self.handle.q)
        lease = shmq_policies_now(self.handle.q.h).visibility
        if self.views[self.next].deadline - now[0] < lease - lease // 8:
            self._renew(wait)
        self.gatherer.handed = now[0]
        return True

    # The message of views[next], or None if its lease ran out.
    cdef Message _hand_out(self, int64_t now):
        cdef shmq_view *view = &self.views[self.next]
        self.next += 1
        if shmq_hand(&self.handle.q, view.receipt, now) != SHMQ_OK:
            return None
        return _new_message(self.handle, view, self.gatherer)

    # The next message, or None if there is none.
    cdef Message _next(self, bint wait, str what):
        cdef Message message
        cdef int64_t now
        while self._advance(wait, what, &now):
            message = self._hand_out(now)
            if message is not None:
                return message
        return None

    def take(self) -> api.Message | None:
        """The next message, or None if there is none now. For callers that wait by other means."""
        return None if self.ended else self._next(False, "aconsume")

    def __next__(self) -> api.Message:
        cdef Message message = self._next(True, "consume")
        if message is None:
            self.close()
            raise StopIteration
        return message


@cython.no_gc_clear
@cython.final
cdef class Bodies:
    """See shmq.api.Bodies. It is for one thread at a time."""

    cdef Consumer consumer
    cdef uint64_t lease          # the receipt of the message in hand; 0: none is
    cdef object __weakref__

    def __cinit__(self, Consumer consumer not None):
        self.consumer = consumer

    # An iterator that is dropped cannot know how the work on its last body ended.
    def __dealloc__(self):
        cdef Handle handle
        if self.lease and self.consumer.generation == fork_generation:
            handle = self.consumer.handle
            if handle.open_:
                with nogil:
                    _nack_to_end(handle, self.lease)

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
        cdef uint64_t lease = self.lease
        if lease and self.consumer.generation == fork_generation and self.consumer.handle.open_:
            self.lease = 0
            self.consumer.gatherer.add(lease)
        return 0

    def flush(self):
        """See shmq.api.Consumer.flush."""
        self.consumer.flush()

    def close(self):
        """See shmq.api.Bodies.close."""
        cdef uint64_t lease = self.lease
        self.lease = 0
        if lease and self.consumer.generation == fork_generation and self.consumer.handle.open_:
            try:
                _settle(self.consumer.handle, NACK, lease, -1)
            except (_errors.LeaseExpired, _errors.QueueDeleted):
                pass  # it is in the queue already, or gone with it
            except _errors.LockTimeout:
                self.lease = lease  # to be closed again, or with the handle
                raise
        self.consumer.close()

    def __next__(self) -> Any:
        cdef Consumer consumer = self.consumer
        cdef Message message
        cdef shmq_view *view
        cdef int64_t now
        if self.lease:
            self._ack()
        while consumer._advance(True, "bodies", &now):
            view = &consumer.views[consumer.next]
            if view.codec or view.body_bytes > SMALL:
                message = consumer._hand_out(now)
                if message is None or not self._holds_body(message):
                    continue
                return message.decoded
            # A copy is good if the lease holds after it, which the hand-out finds out.
            body = PyBytes_FromStringAndSize(<char *>view.body, view.body_bytes)
            consumer.next += 1
            if shmq_hand(&consumer.handle.q, view.receipt, now) == SHMQ_OK:
                self.lease = view.receipt
                return body
        self.close()
        raise StopIteration

    # Reads and decodes the body of a message that is delivered; false if its lease ran out. If
    # that fails, the message goes back, as at any exception.
    cdef bint _holds_body(self, Message message) except -1:
        self.lease = message.lease
        try:
            message.body
            return True
        except _errors.LeaseExpired:
            self.lease = 0
            return False
        except BaseException:
            self.lease = 0
            _nack_to_end(self.consumer.handle, message.lease)
            raise
        finally:
            message._settled = BY_ACK  # this object settles it


# Returns a message that the application had, with the queue's back-off, as far as that is possible
# without waiting for long.
cdef void _nack_to_end(Handle handle, uint64_t lease) noexcept nogil:
    if _lock_to_end(handle):
        shmq_nack(&handle.q, lease, -1, shmq_now())
        _unlock(handle)


def make_consumer(Handle handle, prefetch: int, timeout: float | None, block: bool,
                  where: str | Filter | None = None) -> Any:
    """See shmq.api.Queue.consume."""
    prefetch = _whole("prefetch", prefetch)
    if not 1 <= prefetch <= 1 << 20:
        raise _errors.InvalidOption(f"prefetch={prefetch} is out of range: 1 to {1 << 20}")
    _check_timeout(timeout)
    return Consumer(handle, min(prefetch, <int>shmq_capacity(&handle.q)), timeout, block,
                    None if where is None else _filter_of(where))


def make_bodies(Handle handle, prefetch: int, timeout: float | None, block: bool,
                where: str | Filter | None = None) -> Any:
    """See shmq.api.Queue.bodies."""
    return Bodies(make_consumer(handle, prefetch, timeout, block, where))
