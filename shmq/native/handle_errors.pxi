# The errors of a handle.


cdef object _error(Handle handle, int status):
    if status == SHMQ_DELETED:
        _sleep_at_exit()
        return _errors.QueueDeleted(f"queue {handle.name!r} was deleted")
    if status == SHMQ_DAMAGED:
        return _errors.DamagedSegment(
            f"the segment of queue {handle.name!r} is damaged: its slots contradict each "
            f"other; delete the queue"
        )
    if status == SHMQ_NO_SPACE:
        return _no_space(handle.segment.fd, handle.q.refused_bytes)
    if status == SHMQ_CROWDED:
        return _errors.ShmqError(
            f"queue {handle.name!r} has as many handles attached as it can; close some"
        )
    return _errors.ShmqError(f"queue {handle.name!r}: status {status}")


cdef object _full(Handle handle):
    p = shmq_policies_now(handle.q.h)
    spent = handle.q.h.spent
    advice = handle._why_unwritten(spent) if spent else (
        "consume, wait (block=True), or make it larger")
    return _errors.Full(
        f"queue {handle.name!r} is full: {handle.q.h.live} of {p.capacity} messages, "
        f"{(handle.q.h.units_used - handle.q.h.units_cached) * SHMQ_UNIT} of "
        f"{p.arena_bytes} bytes; {advice}"
    )


cdef object _not_resized(Handle handle, int status, dict options):
    """The error for sizes of ``options`` for which the queue is laid out too small, or too full."""
    cdef shmq_queue *q = &handle.q
    if status == SHMQ_TOO_LARGE:
        most = {"capacity": q.geo.slots_max, "arena_bytes": <uint64_t>q.geo.units * SHMQ_UNIT}
        wrong = ", ".join(f"{name}={options[name]} is more than {limit}"
                          for name, limit in most.items() if options[name] > limit)
        return _errors.InvalidOption(
            f"queue {handle.name!r} is unchanged: {wrong}, for which its memory is laid out; create a "
            f"larger queue, and delete this one once it is drained")
    advice = handle._why_unwritten(q.h.spent) if q.h.spent else (
        "alter it once it is drained")
    return _errors.InvalidOption(
        f"queue {handle.name!r} is unchanged: its {q.h.live} messages take "
        f"{(q.h.units_used - q.h.units_cached) * SHMQ_UNIT} bytes, and some are where there is no room "
        f"with capacity={options['capacity']} and arena_bytes={options['arena_bytes']}; {advice}")


cdef object _empty(Handle handle, block, timeout):
    if block and timeout is not None:
        return _errors.Empty(f"no message came to queue {handle.name!r} within {timeout} s")
    return _errors.Empty(f"no message is visible in queue {handle.name!r}")


# After a get that found nothing. The caller does not hold the lock.
cdef inline int _found_nothing(Handle handle) except -1:
    if handle.ready_event is not None:
        handle.ready_event.clear()
    return 0


cdef object _too_large(Handle handle, size, uint32_t meta):
    return _errors.MessageTooLarge(
        f"a body of {size} bytes with {meta} bytes of properties can never fit into queue "
        f"{handle.name!r}: max_message_bytes={shmq_policies_now(handle.q.h).max_message_bytes}, "
        f"arena_bytes={shmq_policies_now(handle.q.h).arena_bytes}"
    )


# Raises for a dedupe id that the queue would not remember; one that is not a str is refused later.
cdef inline int _check_dedupe_id(Handle handle, dedupe_id) except -1:
    if isinstance(dedupe_id, str) and not handle.q.h.options.dedupe_window:
        raise _errors.no_dedupe_window(handle.name, dedupe_id)
    return 0


cdef object _stale(Handle handle, uint64_t receipt):
    return _errors.LeaseExpired(
        f"receipt {c_seal(&handle.q.seal, receipt)} of queue {handle.name!r} has expired: its "
        f"lease ended, or the message was settled; nothing was changed"
    )


cdef object _locked_out(Handle handle, int64_t waited):
    return _lock_timeout(&handle.q, handle.name, waited)


cdef object _closed_error(Handle handle):
    return _errors.closed_handle("queue", handle.name)
