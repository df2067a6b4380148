# What the binding uses of the core's columns: queue/columns.h, snapshot_read.h, file/columns.h,
# find_by_sequence.h.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from _queue_c cimport cbool, shmq_queue
from _record cimport shmq_replay


cdef extern from "queue/columns.h" nogil:
    enum: SHMQ_COLUMNS_HEAD, SHMQ_COLUMNS_ROW, SHMQ_COLUMNS_PADDING, SHMQ_COLUMNS
    enum: SHMQ_IS_READY, SHMQ_IS_DELAYED, SHMQ_IS_LEASED, SHMQ_IS_DYING

    struct shmq_columns_layout:
        uint32_t count
        uint64_t offset[15]
        uint64_t bytes[15]
        uint64_t size

    struct shmq_columns:
        uint32_t count

    struct shmq_row:
        uint64_t sequence
        int64_t put_at, visible_at, lease_until, expires, dead_at
        int32_t deliveries, priority
        uint8_t state, reason, codec
        uint32_t body_bytes, meta_bytes

    cbool shmq_columns_lay_out(shmq_columns_layout *layout, uint32_t count, uint64_t body_bytes,
                             uint64_t meta_bytes)
    void shmq_columns_begin(shmq_columns *c, void *base, const shmq_columns_layout *room)
    cbool shmq_columns_next(const shmq_columns *c, uint32_t body_bytes, uint32_t meta_bytes,
                            unsigned char **body, unsigned char **meta)
    void shmq_columns_add(shmq_columns *c, const shmq_row *row)
    uint64_t shmq_columns_end(shmq_columns *c)
    cbool shmq_columns_read(const unsigned char *data, uint64_t size, shmq_columns_layout *layout)


cdef extern from "queue/snapshot_read.h" nogil:
    struct shmq_pick:
        uint64_t seq
        uint32_t at

    struct shmq_snapshot_read:
        shmq_pick *picks
        uint32_t most, count
        uint64_t max_bytes, body_bytes, meta_bytes

    void shmq_snapshot_read_begin(shmq_snapshot_read *e, uint64_t messages, uint64_t max_bytes,
                            uint64_t largest)
    int64_t shmq_wall_offset()
    int shmq_snapshot_read_slots(shmq_queue *q, shmq_snapshot_read *e, uint32_t *at, uint32_t end)
    int shmq_snapshot_read_run(shmq_queue *q, shmq_snapshot_read *e, const uint32_t *slots,
                         const uint64_t *seqs, uint64_t *at, uint64_t end)
    cbool shmq_is_there(const shmq_queue *q, uint32_t at, uint64_t seq)
    void shmq_snapshot_read_copy(shmq_queue *q, const shmq_snapshot_read *e, int64_t wall, shmq_columns *c)


cdef extern from "queue/find_by_sequence.h" nogil:
    uint64_t shmq_search_room(uint32_t count)
    void shmq_search(const shmq_queue *q, const uint64_t *seqs, uint32_t count, uint32_t *at,
                     uint32_t *table, uint64_t room)


cdef extern from "file/columns.h" nogil:
    struct shmq_file_columns:
        uint64_t least_seq, most_seq
        int64_t least_put_at, most_put_at
        uint64_t max_bytes
        uint32_t count
        uint64_t body_bytes, meta_bytes

    cbool shmq_file_columns_count(const shmq_replay *r, shmq_file_columns *e, uint64_t *at, uint64_t end)
    void shmq_file_columns_copy(const shmq_replay *r, const shmq_file_columns *e, uint64_t at,
                           uint64_t end, shmq_columns *c)
