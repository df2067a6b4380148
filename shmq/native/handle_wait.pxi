# Waiting for a message, or for room: the deadline, the spin, the sleep.


cdef bint _blocks(Handle handle, block, timeout) except -1:
    if block is None:
        return timeout is not None or shmq_policies_now(handle.q.h).overflow == SHMQ_BLOCK
    return bool(block)


# The deadline of an operation's waits: monotonic ns, FOREVER or AT_ONCE. An UNKNOWN `until` is
# computed from the timeout now, so an operation that succeeds at once never reads the clock.
cdef int64_t _end_of(Handle handle, int event, block, timeout, int64_t *until) except -1:
    if until[0] == UNKNOWN:
        if _blocks(handle, block, timeout) if event == SHMQ_NOT_FULL else block:
            until[0] = _deadline(timeout)
        else:
            until[0] = AT_ONCE
    return until[0]


# Whether to try again after SHMQ_FULL or SHMQ_EMPTY. Even without blocking there is one more
# try, after a look for dead processes.
cdef bint _may_wait(Handle handle, int event, block, timeout, int64_t *until, int *round_) except -1:
    cdef int64_t end = _end_of(handle, event, block, timeout, until)
    if end == AT_ONCE and round_[0] == 0:
        # A dropped message frees its slot once the journal, if it has a writer, has the drop.
        if (event == SHMQ_NOT_FULL and block is None and handle.q.journaled and handle.q.h.spent
                and shmq_policies_now(handle.q.h).overflow == SHMQ_DROP_OLDEST):
            end = until[0] = _real_now() + ROOM_SOON
        else:
            handle.q.look_for_dead = True
            handle._tend()
            round_[0] = 2
            return True
    return _wait(handle, event, end, round_)


# Waits after an operation that found nothing; returns whether to try again. It spins first, as
# long as that pays, then sleeps; before a sleep the failed operation must have counted this
# handle as a sleeper with shmq_fall_asleep. It looks for dead processes before the sleep,
# unless it just has, then during it, and once more before it times out at the deadline.
cdef bint _wait(Handle handle, int event, int64_t until, int *round_) except -1:
    cdef bint posted, watches = handle.q.watches
    cdef int64_t due = handle.q.due
    if round_[0] == 2:
        return False
    if round_[0] <= 0:
        if round_[0] > -MOST_SPINS and _spin(handle, event):
            round_[0] -= 1
            if until == FOREVER or _real_now() < until:
                return True
        round_[0] = 1
        handle.is_idle = False
        if (_real_now() - handle.looked_at > WAIT_SLICE
                and shmq_claim_look(&handle.q, shmq_now(), -SHMQ_SHORT_SLEEP)):
            handle.q.look_for_dead = True
            handle._tend()
        return True
    if handle.interrupted is not None and handle.interrupted():
        if handle.is_idle:
            handle.rouse()  # who interrupted all may have died before it woke them
        until = _real_now()
    posted = _sleep(handle, event, until, due, watches)
    try:
        PyErr_CheckSignals()
        if handle.q.look_for_dead or handle.q.h.dying.head != SHMQ_NIL:
            handle._tend()
    except:
        if posted:
            _pass_on(handle, event)
        raise
    if not posted and until != FOREVER and _real_now() >= until:
        round_[0] = 2
        handle.q.look_for_dead = True
        handle._tend()
    return True


# Spins; whether the awaited change seems to have come.
cdef bint _spin(Handle handle, int event) noexcept:
    cdef int64_t ns, took = -1
    with nogil:
        ns = shmq_spin_time(&handle.spins[event])
        if ns:
            took = shmq_spin(&handle.q, event, ns, handle.spins[event].yield_after)
            shmq_spin_learn(&handle.spins[event], ns, took)
    return took >= 0


cdef void _pass_on(Handle handle, int event) noexcept nogil:
    if _lock_to_end(handle):
        shmq_pass_on(&handle.q, event)
        _unlock(handle)


# Sleeps; whether it was woken. A woken caller tries again even past its deadline, because the
# wakeup was for it alone.
cdef bint _sleep(Handle handle, int event, int64_t until, int64_t due, bint watches) except -1:
    cdef int status, lock_status
    cdef int64_t waited = 0, begun = _real_now()
    cdef int64_t slice_ = _slice_of(handle, event, begun, watches)
    cdef uint32_t sleepers = handle.awake[event] + 1, watchers = handle.watched[event] + watches
    cdef bint is_long
    slice_ = min(slice_, until - begun)
    due -= shmq_now()
    if due < slice_ and not shmq_clock_set:
        slice_ = max(due, 0)
    handle.awake[event] = handle.watched[event] = 0
    is_long = slice_ > SHMQ_SHORT_SLEEP
    with nogil:
        status = shmq_sleep(handle.semaphores[event], slice_)
        slice_ = shmq_patience(0, until, handle.q.self, 0)
        lock_status = _count_out(handle, event, status == SHMQ_OK, sleepers, watchers, slice_)
    handle.q.slept_long = status == SHMQ_OK and is_long
    handle.is_idle = status == SHMQ_TIMED_OUT and is_long
    if lock_status != SHMQ_OK:
        handle.awake[event] += sleepers
        handle.watched[event] += watchers
        while lock_status == SHMQ_BUSY or lock_status == SHMQ_UNREGISTERED:
            PyErr_CheckSignals()
            handle._process_number()
            waited += slice_
            slice_ = shmq_patience(waited, until, handle.q.self, shmq_lock_holder(&handle.q))
            if not slice_:
                raise _locked_out(handle, waited)
            with nogil:
                lock_status = _count_out(handle, event, status == SHMQ_OK, sleepers, watchers,
                                         slice_)
        if lock_status != SHMQ_OK:
            raise _error(handle, lock_status)
        handle.awake[event] -= sleepers
        handle.watched[event] -= watchers
    if status == SHMQ_TIMED_OUT:
        _see_to_guard(handle, begun)
        if handle.q.h.state != SHMQ_OPEN:
            handle.rouse()  # who deleted the queue may have died before
    return status == SHMQ_OK


# The first slice of an operation is not the long one of a crowd, unless another thread of the handle
# has slept for a slice: a signal that comes just before the sleep may be seen only after it.
cdef int64_t _slice_of(Handle handle, int event, int64_t now, bint watches) noexcept:
    if now >= handle.guarded_until:
        return SHMQ_SHORT_SLEEP
    if watches or not handle.is_idle:
        return SHMQ_LONG_SLEEP
    return shmq_crowd_sleep(&handle.q, event)


# After a sleep that began at `begun` and was not ended by a post: a thread that sleeps so long
# makes sure that deaths are noticed from now on, and may then sleep longer, after a look for
# those that came before.
cdef int _see_to_guard(Handle handle, int64_t begun) except -1:
    cdef int64_t now = _real_now()
    cdef int64_t patience = 0 if now < handle.guarded_until else -SHMQ_SHORT_SLEEP
    if now - begun < SHMQ_SHORT_SLEEP:
        return 0
    if shmq_claim_look(&handle.q, shmq_now(), patience):
        handle.q.look_for_dead = True
    handle.guarded_until = now + 2 * SHMQ_LONG_SLEEP if handle.is_guarded() else 0
    return 0


# Takes the lock within `ns`, and subtracts those from the count who no longer sleep.
cdef int _count_out(Handle handle, int event, bint posted, uint32_t sleepers, uint32_t watchers,
                    int64_t ns) noexcept nogil:
    cdef int left = 0, status = shmq_lock_even_deleted(&handle.q, ns)
    if status != SHMQ_OK:
        return status
    if handle.open_:  # closing a handle subtracts its sleepers
        sem_getvalue(handle.semaphores[event], &left)
        while watchers:
            watchers -= 1
            shmq_stop_watching(&handle.q, &handle.q.attachments[handle.q.attachment],
                               event)
        while sleepers:
            sleepers -= 1
            shmq_wake_up(&handle.q, event, posted, left)
            posted = False
    _unlock(handle)
    return SHMQ_OK
