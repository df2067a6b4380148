# The socket of a connection: sending from one buffer, and receiving into another. Only the thread that
# has `sending` or `reading` does so.

# Sends until everything is sent or the deadline `until`; with 0, as far as possible without
# waiting. If two threads send, one sends for both.
cdef int _send_output(Wire wire, int64_t until) except -1:
    if wire.sending or wire.is_broken or wire.out.start == wire.out.end and \
            wire.going.start == wire.going.end:
        return 0
    return _send_all(wire, until)


cdef int _send_all(Wire wire, int64_t until) except -1:
    cdef ssize_t sent
    wire.sending = True
    try:
        while not wire.is_broken and _load_output(wire):
            sent = _send_some(wire)
            if sent < 0:
                if until == 0 or not _await_writable(wire, until):
                    break
    finally:
        wire.sending = False
        if wire.is_closed:
            wire._close_if_idle()
    return 0


# Moves pending output to `going`; whether there is any.
cdef bint _load_output(Wire wire) except -1:
    cdef shmq_buffer spare
    if wire.going.start < wire.going.end:
        return True
    if wire.out.start == wire.out.end:
        return False
    if wire.tls is None:
        spare = wire.going
        wire.going = wire.out
        wire.out = spare
        return True
    plain = PyBytes_FromStringAndSize(<char *>wire.out.data + wire.out.start,
                                      wire.out.end - wire.out.start)
    shmq_buffer_take(&wire.out, PyBytes_GET_SIZE(plain), KEEP_ROOM)
    wire.gone += PyBytes_GET_SIZE(plain)
    sealed = wire.tls.seal(plain)
    if not shmq_buffer_reserve(&wire.going, PyBytes_GET_SIZE(sealed)):
        raise MemoryError
    memcpy(wire.going.data + wire.going.end, PyBytes_AS_STRING(sealed),
           PyBytes_GET_SIZE(sealed))
    wire.going.end += PyBytes_GET_SIZE(sealed)
    return True


# The number of bytes sent, or -1 if it would block. A failure breaks the connection.
cdef ssize_t _send_some(Wire wire) except -2:
    cdef ssize_t sent
    cdef int why
    with nogil:
        sent = c_send(wire.fd, wire.going.data + wire.going.start,
                      wire.going.end - wire.going.start, MSG_DONTWAIT | MSG_NOSIGNAL)
        why = errno
    if sent >= 0:
        shmq_buffer_take(&wire.going, sent, KEEP_ROOM)
        if wire.tls is None:
            wire.gone += sent
        return sent
    if why == EAGAIN or why == EINTR:
        PyErr_CheckSignals()
        return -1
    # What the server sent before it closed explains more than the failure.
    if not wire.reading:
        _drain_input(wire)
    wire._break(_os.strerror(why))
    return 0


# Reads what arrived before the end of the connection.
cdef int _drain_input(Wire wire) except -1:
    wire.reading = True
    try:
        while not wire.is_broken and _receive_input(wire, 0):
            pass
    finally:
        _stop_reading(wire)  # or those who wait would not learn of an end that is read here
    return 0


# A server whose output is not read stops reading. So a thread that waits to send reads
# in the meantime, unless another thread does. Returns false when the time has expired.
cdef bint _await_writable(Wire wire, int64_t until) except -1:
    cdef pollfd poller
    cdef bint reads = not wire.reading
    cdef int64_t left = until - _real_now()
    if left <= 0:
        return False
    poller.fd = wire.fd
    poller.events = POLLOUT | (POLLIN if reads else 0)
    poller.revents = 0
    wire.reading = wire.reading or reads
    try:
        with nogil:
            c_poll(&poller, 1, <int>(min(left, WAIT_SLICE) // 1000000) + 1)
        PyErr_CheckSignals()
        if reads and poller.revents & (POLLIN | POLLHUP | POLLERR):
            _receive_input(wire, 0)
    finally:
        if reads:
            _stop_reading(wire)
    return True


# Receives once and handles the whole frames; whether anything came. Waits for at most `left`
# ns, or a slice.
cdef bint _receive_input(Wire wire, int64_t left) except -1:
    cdef ssize_t got = -1
    cdef size_t room
    cdef int why = EAGAIN
    cdef int64_t spin
    cdef pollfd poller
    cdef unsigned char *to
    if not shmq_buffer_reserve(&wire.coming, _room_needed(wire)):
        raise MemoryError
    to = wire.coming.data + wire.coming.end
    room = wire.coming.room - wire.coming.end
    if wire.streams or left <= 0:
        got = c_recv(wire.fd, to, room, MSG_DONTWAIT)
        why = errno
        if got < 0 and why == EAGAIN:
            wire.drained_at = _real_now()
    if got < 0 and why == EAGAIN and left > 0 and not wire.streams:
        with nogil:
            spin = shmq_spin_time(&wire.spin)
            if spin:
                got = _spin_recv(wire.fd, to, room, &wire.spin, min(spin, left), &why)
    if got < 0 and why == EAGAIN and left > 0:
        poller.fd = wire.fd
        poller.events = POLLIN
        with nogil:
            if left < RECV_SLICE:
                c_poll(&poller, 1, <int>((left + 999999) // 1000000))
                got = c_recv(wire.fd, to, room, MSG_DONTWAIT)
            else:
                got = c_recv(wire.fd, to, room, 0)
            why = errno
    if got < 0:
        if why != EAGAIN and why != EINTR:
            wire._break(_os.strerror(why))
            return True
        return False
    if got == 0:
        wire._break("the server closed the connection")
        return True
    _take_input(wire, got, <size_t>got == room)
    return True


cdef int _take_input(Wire wire, ssize_t got, bint more) except -1:
    cdef int64_t base = wire.drained_at
    wire.used_at = _real_now()
    if not more:
        wire.drained_at = wire.used_at
    wire.coming.end += got
    if wire.tls is not None:
        _decrypt_input(wire, got)
    _take_frames(wire, base)
    return 0


# The least room for a recv: the rest of the frame that has started.
cdef size_t _room_needed(Wire wire):
    cdef size_t held = wire.coming.end - wire.coming.start
    cdef uint64_t whole
    if wire.tls is None and held >= SHMQ_FRAME_HEADER:
        whole = SHMQ_FRAME_HEADER + <uint64_t>shmq_load32(
            wire.coming.data + wire.coming.start + 4)
        if whole > held + RECV_ROOM:
            return whole - held
    return RECV_ROOM


# Decrypts the bytes just received, in place.
cdef int _decrypt_input(Wire wire, ssize_t got) except -1:
    sealed = PyBytes_FromStringAndSize(
        <char *>wire.coming.data + wire.coming.end - got, got)
    wire.coming.end -= got
    try:
        plain = wire.tls.open(sealed)
    except OSError as error:
        wire._break(f"TLS: {error}")
        return 0
    if plain is None:
        wire._break("the server closed the connection")
        return 0
    if not shmq_buffer_reserve(&wire.coming, PyBytes_GET_SIZE(plain)):
        raise MemoryError
    memcpy(wire.coming.data + wire.coming.end, PyBytes_AS_STRING(plain),
           PyBytes_GET_SIZE(plain))
    wire.coming.end += PyBytes_GET_SIZE(plain)
    return 0
