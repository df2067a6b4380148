# The frames of a connection: the parts of a request, and what the server sends. Received frames are
# handled only by the thread that has `reading`.

# The size in bytes of the flags of a CONSUME or SUBSCRIBE and of the expression behind them.
cdef uint64_t _asking(bytes where) except 0:
    if where is None:
        return 1
    if len(where) > 0xFFFF:
        raise ValueError(f"an expression of {len(where)} bytes: 65535 at most")
    return 3 + len(where)


cdef void _ask_for(unsigned char *at, bytes where, uint8_t flags=0) noexcept:
    at[0] = flags if where is None else flags | SHMQ_FLAG_WHERE
    if where is not None:
        at = shmq_store16(at + 1, <uint16_t>len(where))
        memcpy(at, PyBytes_AS_STRING(where), len(where))


# The size in bytes of an item in a PRODUCE_BATCH.
cdef uint64_t _item_bytes(item) except? 0:
    if type(item) is bytes:
        return 5 + PyBytes_GET_SIZE(item)
    meta, body = <tuple>item
    return 5 + (0 if meta is None else 4 + PyBytes_GET_SIZE(meta)) + _buffer_bytes(body)


cdef uint64_t _buffer_bytes(body) except? 0:
    return PyBytes_GET_SIZE(body) if type(body) is bytes else memoryview(body).nbytes


cdef unsigned char *_write_item(unsigned char *at, item) except NULL:
    cdef Py_buffer buffer
    meta, body = (None, item) if type(item) is bytes else <tuple>item
    at[0] = SHMQ_FLAG_PROPERTIES if meta is not None else 0
    at += 1
    if meta is not None:
        at = shmq_store32(at, <uint32_t>PyBytes_GET_SIZE(meta))
        memcpy(at, PyBytes_AS_STRING(meta), PyBytes_GET_SIZE(meta))
        at += PyBytes_GET_SIZE(meta)
    PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE)
    at = shmq_store32(at, <uint32_t>buffer.len)
    memcpy(at, buffer.buf, buffer.len)
    at += buffer.len
    PyBuffer_Release(&buffer)
    return at


cdef int _take_frames(Wire wire, int64_t base) except -1:
    cdef shmq_frame frame
    cdef shmq_reader r
    cdef const unsigned char *at
    while wire.coming.end - wire.coming.start >= SHMQ_FRAME_HEADER and not wire.is_broken:
        at = wire.coming.data + wire.coming.start
        if shmq_frame_read(at, &frame) != SHMQ_S_OK:
            wire._violated("the peer does not speak the DEADBEEF protocol, version 1")
            break
        if wire.coming.end - wire.coming.start - SHMQ_FRAME_HEADER < frame.length:
            break
        r.at = at + SHMQ_FRAME_HEADER
        r.end = r.at + frame.length
        r.bad = False
        if frame.type == SHMQ_T_DELIVER:
            _take_message(wire, &frame, &r, base)
        elif frame.type == SHMQ_T_REPLY:
            _take_reply(wire, &frame, &r)
        else:
            wire._violated(f"the server sent a frame of type {frame.type:#04x}")
        shmq_buffer_take(&wire.coming, SHMQ_FRAME_HEADER + frame.length, KEEP_ROOM)
    return 0


cdef int _take_message(Wire wire, const shmq_frame *frame, shmq_reader *r,
                       int64_t base) except -1:
    cdef Answer answer = wire.calls.get(frame.id)
    cdef RemoteMessage message
    cdef uint64_t receipt
    if answer is None:
        shmq_read64(r)
        receipt = shmq_read64(r)
        if receipt:
            wire.strays.append(receipt)
        return 0
    if answer.messages is None:
        wire._violated("the server delivered a message that nobody asked for")
        return 0
    message = _new_delivery(wire, r, answer.queue, answer.acks,
                            answer.id if answer.streams else 0,
                            (base if answer.streams else answer.begun) + answer.lease)
    if message is None:
        wire._violated("the server sent a malformed DELIVER")
        return 0
    if answer.streams:
        answer.came += 1
        message.number = answer.came
    answer.messages.append(message)
    if not answer.streams and frame.status != SHMQ_FRAME_MORE:
        answer.status = frame.status
        _end_answer(wire, answer)
    elif answer.streams and len(answer.messages) == 1:
        _wake_answer(wire, answer)
    return 0


cdef int _take_reply(Wire wire, const shmq_frame *frame, shmq_reader *r) except -1:
    cdef Answer answer = wire.calls.get(frame.id)
    cdef size_t size = frame.length
    if answer is not None:
        answer.status = frame.status
        answer.payload = PyBytes_FromStringAndSize(<const char *>r.at, size)
    if frame.status >= 0x8000:
        wire.fatal = frame.status
        text = PyBytes_FromStringAndSize(<const char *>r.at, size).decode("utf-8", "replace")
        wire._break(text or "the server closed the connection")
        return 0
    if answer is None:
        return 0
    if answer.streams and frame.status == SHMQ_S_OK:
        return 0  # subscribed: its messages follow
    if answer.acks is not None and frame.status != SHMQ_S_OK and answer.messages is None:
        _note_refusal(wire, answer, r, size)
    if answer.strayed:
        _stray_run(wire, answer)
    _end_answer(wire, answer)
    return 0


cdef int _note_refusal(Wire wire, Answer answer, shmq_reader *r, size_t size) except -1:
    if answer.acks is wire.riding:
        answer.notify = answer.acks.report  # called once no thread reads
    elif answer.status == SHMQ_S_LEASE_EXPIRED:
        while shmq_left(r) >= 8:
            answer.acks.refused.append(shmq_read64(r))
    return 0


cdef int _end_answer(Wire wire, Answer answer) except -1:
    wire.calls.pop(answer.id, None)
    if answer.streams:
        wire.streams -= 1
    answer.done = True
    return _wake_answer(wire, answer)


cdef int _wake_answer(Wire wire, Answer answer) except -1:
    if answer.lock is not None:
        lock, answer.lock = answer.lock, None
        lock.release()
    if answer.notify is not None:
        wire.answered.append(answer)
    return 0
