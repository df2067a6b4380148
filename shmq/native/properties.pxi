# Encodes the arguments of a put. The properties are one msgpack map with the keys of the wire
# protocol, in the bytes that the msgpack package would write: a message put locally and one put
# over the network look the same to the consumer.

cdef struct Text:
    const char *at      # UTF-8, owned by the str; NULL: the property is not given
    Py_ssize_t size

# What a put says beside its body.
cdef struct Properties:
    uint8_t priority
    double delay, ttl                       # in seconds; 0: none
    bint has_priority
    Text group, dedupe_id, reply_to, correlation, codec

cpdef tuple encode_message(body, codec: str | None, priority: int | None, group: str | None,
                           headers: Mapping[str, Any] | None, delay: float | None,
                           deliver_at: float | None, ttl: float | None, dedupe_id: str | None,
                           reply_to: str | None, correlation: str | None, int priorities,
                           bint encoded=False, default: Callable[[Any], Any] | None = None):
    """Encode the arguments of a put; ``encoded``: the body is already encoded.

    ``default`` is that of ``connect``. Returns the body as a buffer, the codec's number, the packed
    properties, the priority, and delay and ttl in seconds (0: none). Raises
    :class:`~shmq.InvalidOption` for a property out of range and TypeError for one of the wrong
    type, or a body that cannot be encoded.
    """
    cdef Properties p
    cdef uint8_t number = 0
    buffer = _encode_body(body, codec, encoded, &number, default)
    meta = _encode_properties(&p, number, codec, priority, group, headers, delay, deliver_at, ttl,
                              dedupe_id, reply_to, correlation, priorities)
    return buffer, number, meta, p.priority, p.delay, p.ttl


cpdef int codec_number(codec: str | None):
    """A codec's number in a slot; None counts as ``bytes``."""
    if codec is None:
        return SHMQ_CODEC_BYTES
    return _CODECS.index(codec) if codec in _CODECS else SHMQ_CODEC_OTHER


cdef object _encode_body(body, codec, bint encoded, uint8_t *number, default):
    if encoded:
        number[0] = codec_number(codec)
        return body
    if codec is None and type(body) is bytes:
        number[0] = SHMQ_CODEC_BYTES
        return body
    if codec is None and type(body) is str:
        number[0] = SHMQ_CODEC_TEXT
        return body.encode()
    buffer, found = _policy.encode_body(body, codec, default)
    number[0] = found
    return buffer


# Checks the properties, and returns them packed; empty if there are none.
cdef bytes _encode_properties(Properties *p, uint8_t number, codec, priority, group, headers,
                              delay, deliver_at, ttl, dedupe_id, reply_to, correlation,
                              int priorities):
    return _pack(p, _check_properties(p, number, codec, priority, group, headers, delay, deliver_at,
                                      ttl, dedupe_id, reply_to, correlation, priorities))


# Checks the properties, and returns the headers packed; None if there are none.
cdef bytes _check_properties(Properties *p, uint8_t number, codec, priority, group, headers,
                             delay, deliver_at, ttl, dedupe_id, reply_to, correlation,
                             int priorities):
    memset(p, 0, sizeof(p[0]))
    p.has_priority = priority is not None
    p.priority = _priority(priority, priorities) if p.has_priority else priorities // 2
    if delay is not None or deliver_at is not None:
        p.delay = _delay(delay, deliver_at)
    if ttl is not None:
        p.ttl = check_seconds("ttl", ttl, 0.001)
    if headers is not None and not isinstance(headers, _Mapping):
        raise TypeError(f"headers={headers!r:.80} must be a map, not {type(headers).__name__}")
    _text("group", group, &p.group)
    _text("dedupe_id", dedupe_id, &p.dedupe_id)
    _text("reply_to", reply_to, &p.reply_to)
    _text("correlation", correlation, &p.correlation)
    if number == SHMQ_CODEC_OTHER:
        _text("codec", codec, &p.codec)
    return None if headers is None else _policy.pack_properties(dict(headers))


cdef inline int _text(str name, value, Text *text) except -1:
    return 0 if value is None else _read_text(name, value, text)


cdef int _read_text(str name, value, Text *text) except -1:
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} must be a str, not {type(value).__name__}")
    try:
        text.at = PyUnicode_AsUTF8AndSize(value, &text.size)
    except UnicodeEncodeError:
        raise _errors.InvalidOption(f"{name}={value!a} cannot be encoded as UTF-8") from None
    return 0


cdef int _priority(priority, int priorities) except -1:
    level = plain_number(priority)
    if isinstance(level, bool) or not isinstance(level, int):
        raise TypeError(f"priority={priority!r} must be an int, not {type(priority).__name__}")
    if not 0 <= level < priorities:
        raise _errors.InvalidOption(
            f"priority={priority} is out of range: 0 to {priorities - 1} in this queue")
    return level


cdef double _delay(delay, deliver_at) except? -1:
    if deliver_at is None:
        return 0.0 if delay is None else check_seconds("delay", delay, 0.0)
    if delay is not None:
        raise _errors.InvalidOption("delay and deliver_at exclude each other: give one of them")
    deliver_at = plain_number(deliver_at)
    if isinstance(deliver_at, bool) or not isinstance(deliver_at, (int, float)):
        raise TypeError(f"deliver_at={deliver_at!r} must be in seconds since 1970, "
                        f"not {type(deliver_at).__name__}")
    if not isfinite(deliver_at):
        raise _errors.InvalidOption(f"deliver_at={deliver_at} must be finite")
    wait = max(0.0, deliver_at - _time.time())
    if wait > MAX_SECONDS:
        raise _errors.InvalidOption(f"deliver_at={deliver_at} is out of range: at most "
                                    f"{MAX_SECONDS:.0f} s from now")
    return wait


# ---- msgpack: https://github.com/msgpack/msgpack/blob/master/spec.md ----

cdef enum:
    ON_STACK = 512              # bytes of packed properties that take no memory of the heap
    MOST_FIXED = 128            # bytes of the keys and of all heads, at most


cdef bytes _pack(const Properties *p, bytes headers):
    cdef char stack[ON_STACK]
    cdef char *begin = stack
    cdef Py_ssize_t most = _most_packed(p, headers)
    if most > <Py_ssize_t>0xFFFFFFFF:
        raise _errors.InvalidOption(f"the properties have {most} bytes: 2**32 - 1 at most")
    if most > ON_STACK:
        begin = <char *>malloc(most)
        if begin == NULL:
            raise MemoryError
    packed = PyBytes_FromStringAndSize(begin, _write(begin, p, headers))
    if begin != stack:
        free(begin)
    return packed


# As many bytes as the packed properties have, or more.
cdef inline Py_ssize_t _most_packed(const Properties *p, bytes headers) noexcept:
    cdef Py_ssize_t most = (MOST_FIXED + p.group.size + p.dedupe_id.size + p.reply_to.size
                            + p.correlation.size + p.codec.size)
    return most if headers is None else most + PyBytes_GET_SIZE(headers)


# Writes the map and returns its bytes, 0 for an empty one. `begin` has room for MOST_FIXED bytes more
# than the values.
cdef Py_ssize_t _write(char *begin, const Properties *p, bytes headers) noexcept:
    cdef unsigned char *count = <unsigned char *>begin
    cdef char *at = begin + 1
    count[0] = 0x80
    if p.has_priority:
        at = _write_int(_write_key(at, b"pri", 3, count), p.priority)
    if p.delay > 0:
        at = _write_int(_write_key(at, b"delay", 5, count), <uint64_t>ceil(p.delay * 1000))
    if p.ttl > 0:
        at = _write_int(_write_key(at, b"ttl", 3, count), <uint64_t>ceil(p.ttl * 1000))
    if headers is not None:
        at = _write_key(at, b"headers", 7, count)
        memcpy(at, PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers))
        at += PyBytes_GET_SIZE(headers)
    at = _write_text(at, b"group", 5, &p.group, count)
    at = _write_text(at, b"dedupe", 6, &p.dedupe_id, count)
    at = _write_text(at, b"reply_to", 8, &p.reply_to, count)
    at = _write_text(at, b"corr", 4, &p.correlation, count)
    at = _write_text(at, b"codec", 5, &p.codec, count)
    return at - begin if count[0] != 0x80 else 0


cdef inline char *_write_key(char *at, const char *key, size_t size,
                             unsigned char *count) noexcept:
    count[0] += 1
    at[0] = <char>(0xA0 | size)
    memcpy(at + 1, key, size)
    return at + 1 + size


cdef inline char *_write_text(char *at, const char *key, size_t size, const Text *text,
                              unsigned char *count) noexcept:
    if text.at == NULL:
        return at
    at = _write_key(at, key, size, count)
    if text.size < 32:
        at[0] = <char>(0xA0 | text.size)
        at += 1
    elif text.size < 1 << 16:
        at = _write_wide(at, 0xD9 if text.size < 1 << 8 else 0xDA, text.size,
                         1 if text.size < 1 << 8 else 2)
    else:
        at = _write_wide(at, 0xDB, text.size, 4)
    memcpy(at, text.at, text.size)
    return at + text.size


cdef char *_write_int(char *at, uint64_t number) noexcept:
    if number < 1 << 7:
        at[0] = <char>number
        return at + 1
    if number < 1 << 8:
        return _write_wide(at, 0xCC, number, 1)
    if number < 1 << 16:
        return _write_wide(at, 0xCD, number, 2)
    if number < <uint64_t>1 << 32:
        return _write_wide(at, 0xCE, number, 4)
    return _write_wide(at, 0xCF, number, 8)


# Writes the type, and the number in that many bytes, the highest first.
cdef char *_write_wide(char *at, int kind, uint64_t number, int size) noexcept:
    at[0] = <char>kind
    while size:
        size -= 1
        at += 1
        at[0] = <char>(number >> 8 * size)
    return at + 1
