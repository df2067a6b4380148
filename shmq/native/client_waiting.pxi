# How threads wait for the answers of one connection: one reads for all.

cdef int _await_answer(Wire wire, Answer answer, int64_t until) except -1:
    while not answer._is_ready():
        if wire.is_broken:
            wire.lose(answer)
            break
        _send_output(wire, until)
        if answer._is_ready():
            break
        if wire.reading:
            if not _await_reader(wire, answer, until):
                break
        elif not _read_for(wire, answer, until):
            break
    return 0


# Another thread reads: sleeps until that thread has read the answer, or stops reading.
cdef bint _await_reader(Wire wire, Answer answer, int64_t until) except -1:
    cdef int64_t left
    lock = _allocate_lock()
    lock.acquire()
    answer.lock = lock
    wire.sleepers.append(answer)
    try:
        if wire.reading and not answer._is_ready():
            left = until - _real_now()
            if left <= 0:
                return False
            # In slices: the thread chosen to read next may have been interrupted instead.
            lock.acquire(True, min(left, RECV_SLICE) / 1e9)
    finally:
        answer.lock = None
        wire.sleepers.remove(answer)
    return True


cdef bint _read_for(Wire wire, Answer answer, int64_t until) except -1:
    cdef int64_t left
    wire.reading = True
    try:
        while not answer._is_ready():
            left = until - _real_now()
            if left <= 0:
                return False
            if not _receive_input(wire, left):
                PyErr_CheckSignals()
                if wire.has_output and not wire.sending:
                    return True  # to be sent first
            if wire.strays:
                return True  # to be returned first: this wait may be for these messages
        return True
    finally:
        _stop_reading(wire)


cdef int _stop_reading(Wire wire) except -1:
    cdef Answer answer
    wire.reading = False
    if wire.strays and not wire.is_broken:
        strays, wire.strays = wire.strays, []
        wire._give_back(strays)
        _send_output(wire, 0)
    if wire.is_closed:
        wire._close_if_idle()
    for answer in wire.sleepers:
        if answer.lock is not None:
            lock, answer.lock = answer.lock, None
            lock.release()
            break
    _notify_waiters(wire)
    return 0


cdef int _notify_waiters(Wire wire) except -1:
    cdef Answer answer
    while wire.answered:
        answered, wire.answered = wire.answered, []
        for answer in answered:
            if answer.notify is not None:
                answer.notify(answer)
    return 0


# Returns the leases of a run that no caller waits for.
cdef int _stray_run(Wire wire, Answer answer) except -1:
    cdef Py_ssize_t at
    if answer.status == SHMQ_S_OK and answer.payload is not None:
        for at in range(8, PyBytes_GET_SIZE(answer.payload) - 11, RUN_ROW):
            wire.strays.append(shmq_load64(
                <const unsigned char *>PyBytes_AS_STRING(answer.payload) + at))
    return 0
