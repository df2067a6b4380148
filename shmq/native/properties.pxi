# Encodes the arguments of a put. The properties are one msgpack map with the keys of the wire
# protocol, in the bytes that the msgpack package would write: a message put locally and one put
# over the network look the same to the consumer.

cdef struct Text:
    const shmq_property_row *row
    const char *at      # UTF-8, owned by the str
    Py_ssize_t size

# What a put says beside its body.
cdef struct Properties:
    uint8_t priority
    bint has_priority
    double delay, ttl                       # in seconds; 0: none
    const Text *group                       # NULL: not given
    const Text *dedupe_id
    int count                               # of the texts
    Text texts[SHMQ_STORED_PROPERTIES]

#: The names of the properties, by their number.
cdef tuple _PROPERTIES = tuple([shmq_row_of_property(at).name.decode()
                                for at in range(<int>SHMQ_PROPERTIES)])
cdef dict _NUMBERS = {name: at for at, name in enumerate(_PROPERTIES)}


# Fills `given`, by number, with the properties of a call; an absent one is None. They are borrowed.
cdef int _take_given(dict properties, PyObject **given, int call, str caller) except -1:
    cdef int at
    for at in range(SHMQ_PROPERTIES):
        given[at] = <PyObject *>None
    for name, value in properties.items():
        at = _NUMBERS.get(name, -1)
        if at < 0 or not shmq_row_of_property(at).calls & call:
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")
        given[at] = <PyObject *>value
    return 0


cdef inline bint _has(PyObject **given, int which) noexcept:
    return given[which] != <PyObject *>None


cdef bint _has_any(PyObject **given) noexcept:
    cdef int at
    for at in range(SHMQ_PROPERTIES):
        if _has(given, at):
            return True
    return False


def encode_message(body, dict properties: dict[str, Any], int priorities, *, bint encoded=False,
                   bint staged=False, default: Callable[[Any], Any] | None = None,
                   ) -> tuple[Any, int, bytes, int, float, float]:
    """Encode the arguments of a put; ``encoded``: the body is already encoded.

    ``staged``: the message is put by a transaction, which takes fewer properties. ``default`` is
    that of ``connect``. Returns the body as a buffer, the codec's number, the packed properties,
    the priority, and delay and ttl in seconds (0: none). Raises :class:`~shmq.InvalidOption` for a
    property out of range and TypeError for one of the wrong type, or a body that cannot be encoded.
    """
    cdef PyObject *given[SHMQ_PROPERTIES]
    cdef Properties p
    cdef uint8_t number = 0
    _take_given(properties, given, SHMQ_CALL_TRANSACTION if staged else SHMQ_CALL_PUT, "put")
    buffer = _encode_body(body, <object>given[SHMQ_P_CODEC], encoded, &number, default)
    meta = _pack(&p, _check_properties(&p, given, number, priorities))
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
        try:
            return body.encode()
        except UnicodeEncodeError:
            pass  # the function raises the error of it
    buffer, found = _policy.encode_body(body, codec, default)
    number[0] = found
    return buffer


# Checks the properties, and returns the headers packed; None if there are none. `given` is NULL for
# no properties at all.
cdef bytes _check_properties(Properties *p, PyObject **given, uint8_t number, int priorities):
    cdef int at
    p.priority = priorities // 2
    p.has_priority = False
    p.delay = p.ttl = 0
    p.group = p.dedupe_id = NULL
    p.count = 0
    if given == NULL:
        return None
    if _has(given, SHMQ_P_PRIORITY):
        p.has_priority = True
        p.priority = _priority(<object>given[SHMQ_P_PRIORITY], priorities)
    if _has(given, SHMQ_P_DELAY) or _has(given, SHMQ_P_DELIVER_AT):
        p.delay = _delay(<object>given[SHMQ_P_DELAY], <object>given[SHMQ_P_DELIVER_AT])
    if _has(given, SHMQ_P_TTL):
        p.ttl = check_seconds("ttl", <object>given[SHMQ_P_TTL], 0.001)
    headers = <object>given[SHMQ_P_HEADERS]
    if headers is not None and not isinstance(headers, _Mapping):
        raise TypeError(f"headers={headers!r:.80} must be a map, not {type(headers).__name__}")
    for at in range(SHMQ_STORED_PROPERTIES):
        if (_has(given, at) and at != SHMQ_P_CODEC
                and shmq_row_of_property(at).kind == SHMQ_MSGPACK_STR):
            _read_text(p, at, <object>given[at])
            if at == SHMQ_P_GROUP:
                p.group = &p.texts[p.count - 1]
            elif at == SHMQ_P_DEDUPE_ID:
                p.dedupe_id = &p.texts[p.count - 1]
    if number == SHMQ_CODEC_OTHER and _has(given, SHMQ_P_CODEC):
        _read_text(p, SHMQ_P_CODEC, <object>given[SHMQ_P_CODEC])
    return None if headers is None else _policy.pack_properties(dict(headers))


cdef int _read_text(Properties *p, int which, value) except -1:
    cdef Text *text = &p.texts[p.count]
    if not isinstance(value, str):
        raise TypeError(
            f"{_PROPERTIES[which]}={value!r} must be a str, not {type(value).__name__}")
    try:
        text.at = PyUnicode_AsUTF8AndSize(value, &text.size)
    except UnicodeEncodeError:
        raise _errors.not_utf8(_PROPERTIES[which], value) from None
    text.row = shmq_row_of_property(which)
    p.count += 1
    return 0


cdef tuple _LEVELS = ("low", "normal", "high")


cdef int _priority(priority, int priorities) except -1:
    level = plain_number(priority)
    if isinstance(level, str):
        if level not in _LEVELS:
            raise _errors.InvalidOption(
                f"priority={level!r} must be an int or one of 'low', 'normal', 'high'")
        return (0, priorities // 2, priorities - 1)[_LEVELS.index(level)]
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
        deliver_at = _moment(deliver_at)
    if not -DBL_MAX <= deliver_at <= DBL_MAX:
        raise _errors.InvalidOption(f"deliver_at={deliver_at} must be finite")
    wait = max(0.0, deliver_at - _time.time())
    if wait > MAX_SECONDS:
        raise _errors.InvalidOption(f"deliver_at={deliver_at} is out of range: at most "
                                    f"{MAX_SECONDS:.0f} s from now")
    return wait


cdef double _moment(value) except? -1:
    if not hasattr(value, "utcoffset") or not hasattr(value, "timestamp"):
        raise TypeError(f"deliver_at={value!r} must be in seconds since 1970, or an aware datetime, "
                        f"not {type(value).__name__}")
    if value.utcoffset() is None:
        raise _errors.InvalidOption(
            f"deliver_at={value!r} names no time zone: give an aware datetime, such as "
            f"datetime.now(UTC) + timedelta(hours=1)")
    return value.timestamp()


# ---- msgpack: https://github.com/msgpack/msgpack/blob/master/spec.md ----

cdef enum:
    ON_STACK = 640              # bytes of packed properties that take no memory of the heap
    KEY = 16                    # bytes of shmq_property_row.key, which are copied at once
    MOST_FIXED = SHMQ_STORED_PROPERTIES * 24  # bytes of the keys and of all heads, at most


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
    cdef Py_ssize_t most = MOST_FIXED
    cdef int i
    for i in range(p.count):
        most += p.texts[i].size
    return most if headers is None else most + PyBytes_GET_SIZE(headers)


# Writes the map and returns its bytes, 0 for an empty one. `begin` has room for MOST_FIXED bytes more
# than the values.
cdef Py_ssize_t _write(char *begin, const Properties *p, bytes headers) noexcept:
    cdef unsigned char *count = <unsigned char *>begin
    cdef char *at = begin + 1
    cdef int i
    count[0] = 0x80
    if p.has_priority:
        at = _write_int(_write_key(at, SHMQ_P_PRIORITY, count), p.priority)
    if p.delay > 0:
        at = _write_int(_write_key(at, SHMQ_P_DELAY, count), <uint64_t>ceil(p.delay * 1000))
    if p.ttl > 0:
        at = _write_int(_write_key(at, SHMQ_P_TTL, count), <uint64_t>ceil(p.ttl * 1000))
    if headers is not None:
        at = _write_key(at, SHMQ_P_HEADERS, count)
        memcpy(at, PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers))
        at += PyBytes_GET_SIZE(headers)
    for i in range(p.count):
        at = _write_text(at, &p.texts[i], count)
    return at - begin if count[0] != 0x80 else 0


cdef inline char *_write_key(char *at, int which, unsigned char *count) noexcept:
    return _write_row(at, shmq_row_of_property(which), count)


cdef inline char *_write_row(char *at, const shmq_property_row *row,
                             unsigned char *count) noexcept:
    count[0] += 1
    at[0] = <char>(0xA0 | row.size)
    memcpy(at + 1, row.key, KEY)
    return at + 1 + row.size


cdef inline char *_write_text(char *at, const Text *text, unsigned char *count) noexcept:
    at = _write_row(at, text.row, count)
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
