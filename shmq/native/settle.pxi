# Settling leased messages.

# Returns the time of the settlement in monotonic ns; so do the following.
cdef int64_t _settle(Handle handle, int how, uint64_t receipt, int64_t ns) except? -1:
    _lock_gets(handle)
    return _settle_locked(handle, how, receipt, ns)


# The same with an error that the message keeps, or None.
cdef int64_t _fail(Handle handle, int how, uint64_t receipt, int64_t ns, bytes error) except? -1:
    cdef shmq_text text
    if error is None:
        return _settle(handle, how, receipt, ns)
    text.at = <const unsigned char *>PyBytes_AS_STRING(error)
    text.bytes = <uint32_t>PyBytes_GET_SIZE(error)
    _lock(handle)
    shmq_keep_error(&handle.q, receipt, text, shmq_now())
    return _settle_locked(handle, how, receipt, ns)


# Settles it, and releases the lock.
cdef int64_t _settle_locked(Handle handle, int how, uint64_t receipt, int64_t ns) except? -1:
    cdef int64_t now = shmq_time(&handle.q) if how == ACK else shmq_now()
    cdef int status
    if how == ACK:
        status = shmq_ack(&handle.q, receipt, now)
    elif how == NACK:
        status = shmq_nack(&handle.q, receipt, ns, now)
    elif how == REJECT:
        status = shmq_reject(&handle.q, receipt, now)
    elif how == EXTEND:
        status = shmq_extend(&handle.q, receipt, ns, now)
    else:
        status = shmq_return_unseen(&handle.q, receipt, max(ns, 0), now)
    _unlock(handle)
    handle._after()
    if status == SHMQ_OK:
        return now
    raise _stale(handle, receipt) if status == SHMQ_STALE else _error(handle, status)


# Raises for a message whose holder has settled it as `how` says, so many ns ago.
cdef int _raise_settled(uint64_t sequence, str name, int how, int64_t ago) except -1:
    what = f"message {sequence} of queue {name!r}"
    if how == IS_COPY:
        raise _errors.LeaseExpired(f"{what} is a copy, which cannot be settled")
    raise _errors.AlreadySettled.of(what, _DEEDS[how], ago / 1e9)


# The core's receipt of a message or of its public receipt. 0, which is not a receipt, stands for
# one that this queue never gave, such as another queue's.
cdef uint64_t _opened(Handle handle, message) except? 0:
    if type(message) is Message:
        if (<Message>message).handle.q.h.options.queue_id != handle.q.h.options.queue_id:
            return 0
        return (<Message>message).lease
    message = plain_number(message)
    if isinstance(message, int) and not isinstance(message, bool):
        return shmq_unseal(&handle.q.seal, message) if 0 <= message < 1 << 64 else 0
    raise TypeError(f"{message!r:.60} is neither a message nor a receipt of this queue")


# Acknowledges them all in one critical section, and sets the receipts of those that were
# acknowledged to 0, which is not a receipt.
cdef int _ack_all(Handle handle, uint64_t *receipts, Py_ssize_t count) except -1:
    cdef Py_ssize_t i
    cdef int64_t now
    cdef int status = SHMQ_OK
    _lock_gets(handle)
    now = shmq_time(&handle.q)
    for i in range(count):
        status = shmq_ack(&handle.q, receipts[i], now)
        if status == SHMQ_OK:
            receipts[i] = 0
        elif status != SHMQ_STALE:
            break
    _unlock(handle)
    if status != SHMQ_OK and status != SHMQ_STALE:
        raise _error(handle, status)
    return 0


# An item that cannot be a receipt becomes one that was never given.
cdef uint64_t _receipt_to_ack(Handle handle, item) except? 0:
    if type(item) is not Message:
        return _opened(handle, item) or NO_RECEIPT
    (<Message>item)._read_if_unread()
    return _opened(handle, item) or NO_RECEIPT
