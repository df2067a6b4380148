# What the binding uses of records as columns: stream/columns.h.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from _queue_c cimport cbool


cdef extern from "stream/columns.h" nogil:
    struct shmq_log_block:
        const unsigned char *bytes
        size_t size
        uint64_t first, end

    struct shmq_log_sums:
        uint32_t count
        cbool keyed, compressed
        uint64_t value_bytes, key_bytes, header_bytes

    struct shmq_log_arrays:
        int64_t *offsets
        int64_t *timestamps
        unsigned char *codecs
        int32_t *value_ends
        int32_t *key_ends
        int32_t *header_ends
        unsigned char *values
        unsigned char *keys
        unsigned char *headers
        unsigned char *has_key

    struct shmq_log_texts:
        const int32_t *ends
        const unsigned char *bytes
        uint64_t size
        const unsigned char *there

    struct shmq_log_rows:
        shmq_log_texts values, keys, headers
        const unsigned char *codecs
        uint8_t codec

    cbool shmq_log_measure(const shmq_log_block *b, shmq_log_sums *sums)
    void shmq_log_fill(const shmq_log_block *b, const shmq_log_arrays *to)
    uint64_t shmq_log_packed(const shmq_log_rows *r, uint32_t begin, uint32_t *end, uint64_t most)
    void shmq_log_pack(const shmq_log_rows *r, uint32_t begin, uint32_t end, unsigned char *to)
