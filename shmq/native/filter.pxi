# Filters: see shmq/core/queue/filter.h.

#: The numbers of a program's operations, fields, relations and kinds of constants, by name.
FILTER_OPERATIONS = {"not": SHMQ_OP_NOT, "and": SHMQ_OP_AND, "or": SHMQ_OP_OR, "test": SHMQ_OP_TEST}
FILTER_FIELDS = {
    "reason": SHMQ_FIELD_REASON, "queue": SHMQ_FIELD_QUEUE, "deliveries": SHMQ_FIELD_DELIVERIES,
    "at": SHMQ_FIELD_AT, "age": SHMQ_FIELD_AGE, "group": SHMQ_FIELD_GROUP,
    "correlation": SHMQ_FIELD_CORRELATION, "codec": SHMQ_FIELD_CODEC,
    "priority": SHMQ_FIELD_PRIORITY, "sequence": SHMQ_FIELD_SEQUENCE, "size": SHMQ_FIELD_SIZE,
    "header": SHMQ_FIELD_HEADER,
}
FILTER_RELATIONS = {
    "=": SHMQ_IS_EQUAL, "<": SHMQ_IS_LESS, "<=": SHMQ_IS_AT_MOST, ">": SHMQ_IS_MORE,
    ">=": SHMQ_IS_AT_LEAST, "like": SHMQ_IS_LIKE,
}
FILTER_CONSTANTS = {
    "nil": SHMQ_CONST_NIL, "bool": SHMQ_CONST_BOOL, "int": SHMQ_CONST_INT, "real": SHMQ_CONST_REAL,
    "text": SHMQ_CONST_TEXT,
}


@cython.final
cdef class Filter:
    """A compiled filter: a program of shmq/core/queue/filter.h. Raises ValueError."""

    cdef bytes keep
    cdef shmq_filter c

    def __cinit__(self, bytes code not None):
        cdef const char *wrong
        if len(code) > SHMQ_FILTER_BYTES:
            raise ValueError(f"a filter of {len(code)} bytes: {SHMQ_FILTER_BYTES} at most")
        self.keep = code
        self.c.code = <const unsigned char *>PyBytes_AS_STRING(code)
        self.c.bytes = <uint32_t>len(code)
        wrong = shmq_filter_fault(&self.c)
        if wrong != NULL:
            raise ValueError(f"a filter of {len(code)} bytes: {wrong.decode()}")

    @property
    def code(self) -> bytes:
        """The program."""
        return self.keep

    def matches(self, bytes properties not None, *, uint64_t sequence=0, uint8_t priority=0,
                uint32_t size=0, uint8_t codec=0, double now=0.0) -> bool:
        """Whether a message with these packed ``properties`` matches; ``now``: s since 1970."""
        cdef shmq_facts facts
        facts.meta = <const unsigned char *>PyBytes_AS_STRING(properties)
        facts.meta_bytes = <uint32_t>len(properties)
        facts.size = size
        facts.seq = sequence
        facts.priority = priority
        facts.codec = codec
        facts.wall = _ns(now)
        return shmq_filter_matches(&self.c, &facts)


cdef Filter _filter_of(where):
    return where if type(where) is Filter else _policy.compile_filter(where)
