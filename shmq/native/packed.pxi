# Packed batches: see shmq/core/queue/packed_batch.h.

def packed_trailer(uint64_t data_bytes, lengths: int | Iterable[int]) -> bytes:
    """The trailer behind ``data_bytes`` bytes of records of these lengths.

    ``lengths`` is one int for all, a buffer of unsigned 32-bit numbers, or an iterable of
    ints. Raises InvalidOption unless they add up to the data.
    """
    cdef const uint32_t[::1] view
    cdef uint64_t sum_ = 0
    cdef Py_ssize_t i, count
    cdef uint32_t first, differing = 0
    lengths = plain_number(lengths)
    if isinstance(lengths, (int, str)):
        return _trailer_of_alike(data_bytes, lengths)
    view = _as_lengths(lengths)
    count = view.shape[0]
    if count >= SHMQ_PACKED_VARIES:
        raise _errors.InvalidOption(f"{count} records are too many for one batch")
    first = view[0] if count else 0
    for i in range(count):
        sum_ += view[i]
        differing |= view[i] ^ first
    if sum_ != data_bytes:
        raise _errors.InvalidOption(
            f"the {count} lengths add up to {sum_} bytes, and the data has {data_bytes}")
    if first and not differing and first != SHMQ_PACKED_VARIES:
        return _little(count) + _little(first)
    raw = PyBytes_FromStringAndSize(<char *>&view[0], count * 4) if count else b""
    return raw + _little(count) + _little(SHMQ_PACKED_VARIES)


# The trailer for records of one size, which has no lengths.
cdef bytes _trailer_of_alike(uint64_t data_bytes, size):
    if isinstance(size, (bool, str)):
        raise TypeError(
            f"lengths={size!r:.60} must be the bytes of every record, or of each, not "
            f"{type(size).__name__}")
    if (not 0 < size < SHMQ_PACKED_VARIES or data_bytes % size
            or data_bytes // size >= SHMQ_PACKED_VARIES):
        raise _errors.InvalidOption(
            f"lengths={size}: {data_bytes} bytes are not a number of records of that many bytes")
    return _little(data_bytes // size) + _little(size)


cdef bytes _little(uint64_t number):
    cdef uint32_t value = <uint32_t>number
    return PyBytes_FromStringAndSize(<char *>&value, 4)


cdef object _as_lengths(lengths):
    try:
        view = memoryview(lengths)
    except TypeError:
        return _each_length(lengths)
    if view.format not in _LENGTH_FORMATS or view.itemsize != 4 or view.ndim != 1:
        raise TypeError(
            f"lengths are unsigned 32-bit numbers in one dimension, not {view.format!r} of "
            f"{view.itemsize} bytes in {view.ndim}")
    if view.format not in ("I", "L") or not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B").cast("I")


_LENGTH_FORMATS = ("I", "=I", "<I", "L", "=L", "<L")


cdef object _each_length(lengths):
    if not hasattr(lengths, "__iter__"):
        raise TypeError(
            f"lengths={lengths!r:.60} must be an int or many, not {type(lengths).__name__}")
    cdef list each = list(lengths)
    try:
        return _array.array("I", each)
    except OverflowError:
        wrong = next(one for one in each if not 0 <= one < 1 << 32)
        raise _errors.InvalidOption(
            f"lengths: {wrong} is not the bytes of a record: 0 to 4294967295") from None
    except TypeError:
        raise TypeError(f"lengths={each!r:.60}: each must be an int") from None


def unpack_records(const unsigned char[::1] body: bytes) -> list[bytes]:
    """The records of a packed body, as a list of bytes. Raises ValueError."""
    cdef shmq_packed packed
    cdef const unsigned char *raw = &body[0] if body.shape[0] else NULL
    cdef uint32_t i, length
    cdef uint64_t at = 0
    cdef list records = []
    if raw == NULL or not shmq_packed_read(raw, body.shape[0], &packed):
        raise ValueError("its end does not describe records")
    for i in range(packed.count):
        length = shmq_packed_length(&packed, i)
        records.append(PyBytes_FromStringAndSize(<char *>raw + at, length))
        at += length
    return records
