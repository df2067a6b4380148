# Records, journals, snapshots and segment files in the C core: shmq/core/file. The headers document
# them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from core.base cimport cbool
from core.queue cimport shmq_columns, shmq_queue, shmq_slot


cdef extern from "file/replay.h" nogil:
    struct shmq_file_columns:
        uint64_t least_seq, most_seq
        int64_t least_put_at, most_put_at
        uint64_t max_bytes
        uint32_t count
        uint64_t body_bytes, meta_bytes

    cbool shmq_file_columns_count(const shmq_replay *r, shmq_file_columns *e, uint64_t *at, uint64_t end)
    void shmq_file_columns_copy(const shmq_replay *r, const shmq_file_columns *e, uint64_t at,
                           uint64_t end, shmq_columns *c)


cdef extern from "file/record.h" nogil:
    enum: SHMQ_DMSQ_VERSION, SHMQ_RECORD_HEAD, SHMQ_BATCH_BYTES, SHMQ_TOTALS
    enum: SHMQ_R_BATCH, SHMQ_R_PUT, SHMQ_R_SETTLE, SHMQ_R_UPDATE, SHMQ_R_DEDUPE
    enum: SHMQ_R_STATE, SHMQ_R_END, SHMQ_R_INDEX
    enum: SHMQ_TOTAL_ACKED, SHMQ_TOTAL_NACKED, SHMQ_TOTAL_EXPIRED, SHMQ_TOTAL_DEAD_LETTERED
    enum: SHMQ_TOTAL_DROPPED, SHMQ_TOTAL_DEDUPED, SHMQ_TOTAL_REDELIVERED
    enum: SHMQ_R_GROUPED, SHMQ_R_TTL, SHMQ_R_DELAYED, SHMQ_R_DEAD, SHMQ_R_ORIGIN, SHMQ_R_HOLDS
    enum: SHMQ_READ_OK

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
        uint64_t totals[SHMQ_TOTALS]

    size_t shmq_record_size(const shmq_record *r)
    unsigned char *shmq_record_write(unsigned char *at, uint32_t salt, const shmq_record *r)
    void shmq_records_seal(unsigned char *data, size_t size, uint32_t salt)
    int shmq_record_read(const unsigned char *data, size_t size, uint32_t salt, cbool verify,
                         shmq_record *r, size_t *next)
    uint64_t shmq_record_settled(const shmq_record *r, uint32_t at)
    shmq_taken shmq_record_taken(const shmq_record *r, uint32_t at)
    shmq_indexed_batch shmq_record_indexed(const shmq_record *r, uint32_t at)


cdef extern from "file/replay.h" nogil:
    enum: SHMQ_FED_NO_MEMORY, SHMQ_FED_MORE

    struct shmq_copy:
        uint64_t queue, seq, here

    struct shmq_skipped:
        uint32_t file
        int how
        uint64_t offset, bytes

    struct shmq_array:
        void *items
        uint64_t count

    struct shmq_live_messages:
        uint64_t count

    struct shmq_replay:
        shmq_live_messages live
        uint64_t live_bytes, last_seq, last_batch, records, puts
        uint64_t totals[SHMQ_TOTALS]
        shmq_array copies, taken, skipped
        uint64_t most
        cbool more
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


cdef extern from "file/synced_write.h" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    int shmq_write_synced(int file, iovec *pieces, int count, int64_t offset)


cdef extern from "file/change_scan.h" nogil:
    struct shmq_out:
        unsigned char *at
        unsigned char *end
    struct shmq_candidate:
        uint64_t seq
        uint32_t at
    struct shmq_candidates:
        shmq_candidate *at
        uint32_t len
    struct shmq_change_scan:
        shmq_queue *q
        uint64_t batch, covered, puts_logged, settles_logged, needed
        shmq_candidates moved, done
    void shmq_scan_begin(shmq_change_scan *f, shmq_queue *q)
    void shmq_scan_end(shmq_change_scan *f)
    void shmq_disclaim(shmq_change_scan *f)
    int shmq_collect(shmq_change_scan *f, shmq_out *out, uint32_t salt)
    uint32_t shmq_held_back(shmq_change_scan *f)
    void shmq_arrived(shmq_change_scan *f, uint32_t at)
    void shmq_copies_waiting(shmq_queue *q, uint64_t origin_queue, const uint64_t *seqs,
                             cbool *waits, uint32_t count)
    void shmq_mark_synced(shmq_change_scan *f, uint64_t segment, uint64_t offset, uint64_t bytes)
    cbool shmq_release(shmq_change_scan *f, uint32_t most)
    void shmq_fail(shmq_queue *q, uint32_t error)
    int shmq_await_changes(shmq_change_scan *f, int64_t ns, int64_t linger, uint32_t crowd,
                    int64_t patience)
    void shmq_wake_scan(shmq_change_scan *f)
    int shmq_scan(shmq_queue *q, uint32_t *cursor, uint64_t limit, shmq_out *out, uint32_t salt,
                  uint64_t *count, uint64_t *needed)
    int shmq_scan_dedupe(shmq_queue *q, uint64_t *cursor, uint64_t limit, shmq_out *out,
                         uint32_t salt)


cdef extern from "file/restore.h" nogil:
    struct shmq_restorer:
        shmq_queue *q
        int64_t now, wall
        cbool logged
    int shmq_restore(shmq_restorer *r, const shmq_record *record)
    int shmq_restore_id(shmq_restorer *r, const shmq_taken *id)
    void shmq_restore_end(shmq_restorer *r, uint64_t last_seq, const uint64_t *totals,
                          uint64_t batch, uint64_t segment, uint64_t offset)


cdef extern from "file/stream_segment.h" nogil:
    struct shmq_stream_segment_salts:
        uint32_t file, entries

    struct shmq_stream_segment:
        uint64_t at, offset, stop_offset, most_bytes, most, records, bytes
        int64_t time, stop_time
        cbool verify

    struct shmq_stream_segment_run:
        uint64_t producer, sequence, offset
        uint32_t count

    struct shmq_stream_segment_whole:
        uint64_t end, offset, records, batches, last_batch, damage
        int64_t time
        cbool closed
        uint64_t most
        cbool more

    int shmq_stream_segment_walk(const unsigned char *data, size_t size, shmq_stream_segment_salts salts,
                        shmq_stream_segment *w)
    cbool shmq_stream_segment_find(const unsigned char *data, size_t size, shmq_stream_segment_salts salts,
                          shmq_stream_segment *w)
    int shmq_stream_segment_next_run(const unsigned char *data, size_t size, shmq_stream_segment_salts salts,
                            shmq_stream_segment *w, shmq_stream_segment_run *run)
    size_t shmq_stream_segment_entries(const unsigned char *data, size_t size, unsigned char *to)
    int shmq_stream_segment_check(const unsigned char *data, size_t size, size_t start,
                         shmq_stream_segment_salts salts, shmq_stream_segment_whole *w)
