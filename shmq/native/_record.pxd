# What the binding uses of the core's records and of their replay: record.h, replay.h.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from _queue_c cimport cbool


cdef extern from "base/crc32c.h" nogil:
    uint32_t shmq_crc32c(uint32_t crc, const void *data, size_t size)


cdef extern from "file/record.h" nogil:
    enum: SHMQ_DMSQ_VERSION, SHMQ_RECORD_HEAD, SHMQ_BATCH_BYTES, SHMQ_TOTALS
    enum: SHMQ_R_BATCH, SHMQ_R_PUT, SHMQ_R_SETTLE, SHMQ_R_UPDATE, SHMQ_R_DEDUPE
    enum: SHMQ_R_STATE, SHMQ_R_END, SHMQ_R_INDEX, SHMQ_R_FOOTER
    enum: SHMQ_TOTAL_ACKED, SHMQ_TOTAL_NACKED, SHMQ_TOTAL_EXPIRED, SHMQ_TOTAL_DEAD_LETTERED
    enum: SHMQ_TOTAL_DROPPED, SHMQ_TOTAL_DEDUPED, SHMQ_TOTAL_REDELIVERED
    enum: SHMQ_R_GROUPED, SHMQ_R_TTL, SHMQ_R_DELAYED, SHMQ_R_DEAD, SHMQ_R_ORIGIN, SHMQ_R_HOLDS
    enum: SHMQ_READ_OK, SHMQ_READ_END, SHMQ_READ_CUT, SHMQ_READ_CRC, SHMQ_READ_TYPE
    enum: SHMQ_READ_MALFORMED

    struct shmq_taken:
        uint64_t hash[2]
        uint64_t seq
        int64_t until

    struct shmq_indexed_batch:
        uint64_t offset, batch, last_seq

    struct shmq_record:
        uint8_t type, flags, priority, codec, reason
        uint16_t deliveries
        uint64_t seq
        int64_t put_at
        uint32_t body_bytes, meta_bytes
        const void *body
        const void *meta
        uint64_t group
        int64_t expires, until, dead_at
        uint64_t origin_queue, origin_seq
        uint32_t count
        const void *entries
        uint64_t batch
        int64_t wall
        uint64_t last_seq, bytes
        uint32_t crc
        uint64_t batches, puts, index, end
        uint64_t totals[7]

    size_t shmq_record_size(const shmq_record *r)
    unsigned char *shmq_record_write(unsigned char *at, uint32_t salt, const shmq_record *r)
    void shmq_records_seal(unsigned char *data, size_t size, uint32_t salt)
    int shmq_record_read(const unsigned char *data, size_t size, uint32_t salt, cbool verify,
                         shmq_record *r, size_t *next)
    uint64_t shmq_record_settled(const shmq_record *r, uint32_t at)
    shmq_taken shmq_record_taken(const shmq_record *r, uint32_t at)
    shmq_indexed_batch shmq_record_indexed(const shmq_record *r, uint32_t at)


cdef extern from "file/replay.h" nogil:
    enum: SHMQ_FED_OK, SHMQ_FED_TORN, SHMQ_FED_DAMAGED, SHMQ_FED_NO_MEMORY

    struct shmq_copy:
        uint64_t queue, seq, here

    struct shmq_skipped:
        uint32_t file
        int how
        uint64_t offset, bytes

    struct shmq_array:
        void *items
        uint64_t count

    struct shmq_replay:
        uint64_t count, live_bytes, last_seq, last_batch, records, puts
        uint64_t totals[7]
        shmq_array copies, taken, skipped
        cbool sorted

    struct shmq_found:
        uint64_t end, damage
        int how
        uint64_t batches, puts
        cbool complete

    void shmq_replay_begin(shmq_replay *r, cbool salvage, uint64_t first, uint64_t last)
    void shmq_replay_end(shmq_replay *r)
    int shmq_replay_feed(shmq_replay *r, const unsigned char *data, uint64_t size,
                         uint64_t start, uint32_t salt, uint64_t first_batch, uint64_t whole,
                         cbool exact, shmq_found *found)
    cbool shmq_replay_discard(shmq_replay *r, uint64_t seq)
    cbool shmq_replay_span(const shmq_replay *r, uint64_t *least, uint64_t *greatest)
    void shmq_replay_spread(const shmq_replay *r, uint64_t first, uint64_t width, uint64_t *sums,
                            uint64_t count)
    cbool shmq_replay_sort(shmq_replay *r, int64_t wall)
    void shmq_replay_message(const shmq_replay *r, uint64_t at, shmq_record *record)
    uint64_t shmq_replay_closed(const unsigned char *data, uint64_t size, uint64_t start,
                                uint32_t salt)
