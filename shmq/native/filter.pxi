# Choosing by a filter: see shmq/core/queue/filter.h and shmq/core/queue/select.h.


@cython.final
cdef class Filter:
    """Which messages are meant: a program as shmq/core/queue/filter.h has it. Raises ValueError."""

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
    def code(self):
        """The program."""
        return self.keep

    def matches(self, bytes properties not None, *, uint64_t sequence=0, uint8_t priority=0,
                uint32_t size=0, uint8_t codec=0, double now=0.0):
        """Whether it means what has these packed ``properties``; ``now``: s since 1970."""
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
