# Streams and their groups in the C core: shmq/core/stream. The headers document them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from core.base cimport cbool, shmq_process, shmq_texts
from core.queue cimport SHMQ_NAME_BYTES


cdef extern from "stream/entry.h" nogil:
    enum: SHMQ_ENTRY_HEAD, SHMQ_E_PRODUCED, SHMQ_E_KEYED, SHMQ_E_SEEN
    enum: SHMQ_PLAIN
    enum shmq_entry_read_status "shmq_entry_read":
        SHMQ_E_OK, SHMQ_E_END, SHMQ_E_OTHER, SHMQ_E_WRONG
    struct shmq_entry:
        uint8_t flags, codec, compression
        uint32_t count
        uint64_t offset
        int64_t timestamp
        uint64_t producer, sequence
        uint32_t key_bytes, headers_bytes, value_bytes, raw
        const unsigned char *value
        const unsigned char *key
        const unsigned char *headers
    uint64_t shmq_entry_size(uint8_t flags, uint64_t value, uint64_t key, uint64_t headers)
    unsigned char *shmq_entry_write(unsigned char *at, uint32_t salt, const shmq_entry *e)
    void shmq_entry_seal(unsigned char *at, uint32_t salt)
    void shmq_entry_seal_all(unsigned char *at, uint64_t size, uint32_t salt)
    uint64_t shmq_entry_value_at(const unsigned char *at, uint64_t size,
                                 const unsigned char **value, uint32_t *bytes)
    int c_entry_read "shmq_entry_read"(const unsigned char *bytes, uint64_t size, uint32_t salt,
                                       cbool verify, shmq_entry *e, uint64_t *next)


cdef extern from "stream/layout.h" nogil:
    enum: SHMQ_LOG_VERSION, SHMQ_STREAM_VERSION, SHMQ_GROUP_STATE_BYTES, SHMQ_HOLDS
    enum: SHMQ_MAX_PARTITIONS, SHMQ_HOLD_FREE, SHMQ_HOLD_PIN, SHMQ_HOLD_CURSOR
    struct shmq_log_options:
        # struct of a stream: made by tools/options.py
        uint64_t stream_id
        uint64_t identity
        uint64_t ring_bytes
        uint64_t max_record_bytes
        uint64_t retention_bytes
        int64_t retention
        int64_t created_at
        uint64_t segment_bytes
        uint32_t partitions
        uint32_t partition
        uint8_t overflow
        uint8_t durability
        uint8_t confirm
        uint8_t reserved[5]
        uint64_t first
        char name[SHMQ_NAME_BYTES]
        # end

    struct shmq_stream:
        uint64_t published
        shmq_log_options options
        uint32_t state
        uint32_t wakeup
        uint64_t shape, next_shape
    struct shmq_hold:
        uint32_t kind
        uint64_t owner, position, tag
    struct shmq_produced:
        uint64_t producer, sequence, offset
        uint32_t count
    struct shmq_log_header:
        uint64_t published
        shmq_log_options options
        uint64_t committed, oldest, recoveries
        uint32_t state, error, behind, sealed
        uint64_t synced, awaited, writer


cdef extern from "stream/log.h" nogil:
    enum: SHMQ_OUT_OF_RANGE, SHMQ_GAP, SHMQ_SEALED
    struct shmq_log:
        shmq_log_header *h
        const shmq_process *self
        shmq_hold *holds
        uint64_t ring_bytes, refused_bytes
        int64_t retention
        uint32_t salt
        cbool blocks, durable
    struct shmq_log_geometry:
        uint64_t segment_bytes
    struct shmq_log_item:
        const void *value
        const void *key
        const void *headers
        uint32_t value_bytes, key_bytes, headers_bytes
        uint8_t flags, codec, compression
        uint32_t count, raw
        int64_t timestamp
    struct shmq_log_value:
        const void *bytes
        uint32_t size
    struct shmq_log_loan:
        uint64_t owner
        unsigned char *value
        uint32_t hold
        cbool keep
    struct shmq_log_piece:
        shmq_log_loan *loan
        const shmq_log_item *items
        uint32_t count
        int64_t timestamp
        cbool produced, gaps
        uint64_t producer, sequence
    struct shmq_log_appended:
        uint64_t first, records
        int64_t timestamp
        uint64_t expected
        cbool duplicate, skipped
    struct shmq_log_extent:
        uint64_t begin, end, first, next, bytes, entries
        bint packed
        int64_t seen
    struct c_bounds "shmq_log_bounds":
        uint64_t earliest, latest, oldest, committed
        int64_t earliest_at, latest_at
    void shmq_log_lay_out(const shmq_log_options *options, shmq_log_geometry *geo)
    void shmq_log_bind(shmq_log *log, void *base, int fd, const shmq_log_geometry *geo,
                       const shmq_log_options *options, shmq_stream *stream,
                       const shmq_process *self)
    int shmq_log_prepare(shmq_log *log, const shmq_log_options *options, int64_t last_seen)
    void shmq_log_announce(shmq_log *log)
    int shmq_log_inspect(const void *base, uint64_t mapped, shmq_log_geometry *geo)
    void shmq_stream_prepare(shmq_stream *stream, const shmq_log_options *options)
    void shmq_stream_announce(shmq_stream *stream)
    int shmq_stream_inspect(const void *base, uint64_t mapped)
    uint64_t shmq_stream_shape(const shmq_stream *stream)
    uint64_t shmq_stream_next_shape(const shmq_stream *stream)
    cbool shmq_stream_is_shape(const shmq_stream *stream, uint64_t shape)
    void shmq_stream_intend(shmq_stream *stream, uint64_t shape)
    void shmq_stream_reshape(shmq_stream *stream, uint64_t shape)
    void shmq_log_seal(shmq_log *log)
    int shmq_log_reserve(shmq_log *log, uint64_t size)
    void shmq_log_delete(shmq_log *log)
    int shmq_log_lock(shmq_log *log, int64_t ns)
    uint64_t shmq_log_holder(const shmq_log *log)
    void shmq_log_unlock(shmq_log *log)
    int shmq_log_append(shmq_log *log, const shmq_log_piece *piece, shmq_log_appended *out)
    cbool shmq_log_append_values(shmq_log *log, const shmq_log_value *values, uint32_t count,
                                 uint64_t size, shmq_log_appended *out)
    void shmq_log_end_loan(shmq_log *log, const shmq_log_loan *loan)
    void shmq_log_expire(shmq_log *log)
    cbool shmq_log_is_stale(const shmq_log *log)
    int shmq_log_hold(shmq_log *log, uint32_t kind, uint64_t owner, uint64_t tag,
                      uint64_t offset, uint32_t *at)
    void shmq_log_move(shmq_log *log, uint32_t at, uint64_t offset, uint64_t hint)
    void shmq_log_drop(shmq_log *log, uint32_t at)
    shmq_produced *shmq_log_producer(shmq_log *log, uint64_t producer)
    int shmq_log_back_producers(shmq_log *log)
    void shmq_log_restore(shmq_log *log, uint64_t producer, uint64_t sequence, uint64_t offset,
                          uint32_t count)
    int shmq_log_bounds(const shmq_log *log, c_bounds *bounds)
    int shmq_log_find(const shmq_log *log, uint64_t offset, uint64_t end, uint64_t limit,
                      uint64_t most, uint64_t hint, shmq_log_extent *extent)
    cbool shmq_log_copy(const shmq_log *log, const shmq_log_extent *extent, void *to)
    int shmq_log_pieces(const shmq_log *log, const shmq_log_extent *extent,
                        const unsigned char **at, uint64_t *bytes)
    cbool shmq_log_holds(const shmq_log *log, uint64_t position)
    int shmq_log_at(const shmq_log *log, int64_t time, uint64_t *offset)
    void shmq_log_wake(shmq_log *log)
    void shmq_log_wake_room(shmq_log *log)
    uint32_t shmq_log_arm(shmq_log *log)
    int64_t shmq_log_spin(shmq_log *log, uint64_t position, int64_t ns, int64_t yield_after)
    int shmq_stream_sleep(shmq_stream *stream, uint32_t wakeup, int64_t ns)
    uint32_t shmq_log_room(shmq_log *log)
    int shmq_log_wait_room(shmq_log *log, uint32_t room, int64_t ns)
    void shmq_log_wake_all(shmq_log *log)
    void shmq_log_mark_synced(shmq_log *log, uint64_t offset)
    void shmq_log_fail(shmq_log *log, uint32_t error)
    uint32_t shmq_log_error(const shmq_log *log)
    int shmq_log_wait_synced(shmq_log *log, uint64_t offset, int64_t ns)


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

    struct shmq_log_rows:
        shmq_texts values, keys, headers
        const unsigned char *codecs
        uint8_t codec

    cbool shmq_log_measure(const shmq_log_block *b, shmq_log_sums *sums)
    void shmq_log_fill(const shmq_log_block *b, const shmq_log_arrays *to)
    uint64_t shmq_log_packed(const shmq_log_rows *r, uint32_t begin, uint32_t *end, uint64_t most)
    void shmq_log_pack(const shmq_log_rows *r, uint32_t begin, uint32_t end, unsigned char *to)


cdef extern from "stream/group_state.h" nogil:
    enum: SHMQ_MAX_MEMBERS, SHMQ_MAX_GROUP_PARTITIONS, SHMQ_MAX_HELD, SHMQ_MEMBER_NAME
    uint64_t SHMQ_NO_OFFSET

    struct shmq_group_state_options:
        # struct of a group: made by tools/options.py
        uint64_t group_id
        uint64_t stream_id
        int64_t created_at
        int64_t session
        int64_t lease
        uint32_t assignment
        uint32_t latest
        uint32_t max_deliveries
        uint32_t held
        char dead_letter[SHMQ_NAME_BYTES]
        # end

    struct shmq_group_state_header:
        shmq_group_state_options options
        uint32_t state
        uint32_t partitions
        uint64_t epoch
        uint64_t planned
        uint64_t change
        uint64_t rebalances
        uint64_t evicted
        uint64_t recoveries
        uint64_t acked
        uint64_t dropped
        uint64_t dead_lettered
        uint64_t skipped
        uint32_t live

    struct shmq_member:
        uint64_t id
        uint64_t process
        int64_t deadline
        int64_t joined_at
        char name[32]

    struct shmq_group_partition:
        uint64_t owner
        uint64_t plan
        uint64_t committed
        int64_t committed_at
        uint64_t next
        uint64_t moves

    struct shmq_group_state:
        shmq_group_state_header *h
        shmq_member *members
        shmq_group_partition *partitions
        const shmq_process *self
        uint32_t capacity

    uint64_t shmq_group_state_bytes(const shmq_group_state_options *options)
    int shmq_group_state_format(void *base, uint64_t bytes, const shmq_group_state_options *options)
    int shmq_group_state_open(shmq_group_state *r, void *base, uint64_t size,
                              const shmq_process *self)
    int shmq_group_state_lock(shmq_group_state *r, int64_t ns)
    uint64_t shmq_group_state_holder(const shmq_group_state *r)
    void shmq_group_state_unlock(shmq_group_state *r)
    void shmq_group_state_close(shmq_group_state *r)
    int shmq_group_state_widen(shmq_group_state *r, uint32_t partitions)
    int shmq_group_state_join(shmq_group_state *r, uint64_t process, const char *name, int64_t now,
                         uint32_t *at, uint64_t *id)
    int shmq_group_state_leave(shmq_group_state *r, uint64_t id, bint evicted, int64_t now)
    int shmq_group_state_beat(shmq_group_state *r, uint32_t at, uint64_t id, int64_t now)
    int shmq_group_state_sleep(const shmq_group_state *r, uint64_t change, shmq_stream *stream,
                               uint32_t wakeup, int64_t ns) nogil
    bint shmq_group_state_watch(shmq_group_state *r, int64_t ns, int64_t now)
    uint64_t shmq_group_state_silent(const shmq_group_state *r, int64_t now)
    int shmq_group_state_plan(shmq_group_state *r, uint64_t epoch, const uint64_t *whom, uint32_t n)
    int shmq_group_partition_claim(shmq_group_state *r, uint32_t partition, uint64_t id)
    int shmq_group_partition_release(shmq_group_state *r, uint32_t partition, uint64_t id)
    int shmq_group_partition_commit(shmq_group_state *r, uint32_t partition, uint64_t id, uint64_t offset,
                         int64_t wall)


cdef extern from "stream/group_state.h" nogil:
    struct shmq_shared_lease:
        uint64_t receipt
        uint64_t offset
        uint32_t partition
        uint32_t deliveries

    void shmq_shared_group_begin(shmq_group_state *r, uint32_t partition, uint64_t offset)
    int shmq_shared_group_lease(shmq_group_state *r, uint64_t id, uint32_t partition,
                        uint64_t earliest, uint64_t latest, uint32_t limit, int64_t now,
                        shmq_shared_lease *lent,
                        uint32_t *count)
    uint32_t shmq_shared_group_lease_returned(shmq_group_state *r, uint64_t id, uint32_t limit,
                              int64_t now, shmq_shared_lease *lent)
    int shmq_shared_group_hand(shmq_group_state *r, uint64_t receipt, int64_t now)
    int shmq_shared_group_ack(shmq_group_state *r, uint64_t receipt, int64_t now)
    int shmq_shared_group_nack(shmq_group_state *r, uint64_t receipt, int64_t delay, int64_t now)
    int shmq_shared_group_return(shmq_group_state *r, uint64_t receipt, int64_t delay, int64_t now)
    int shmq_shared_group_reject(shmq_group_state *r, uint64_t receipt, int64_t now)
    int shmq_shared_group_extend(shmq_group_state *r, uint64_t receipt, int64_t ns, int64_t now)
    int shmq_shared_group_take_dead(shmq_group_state *r, uint64_t id, int64_t now,
                              shmq_shared_lease *lent)
    int shmq_shared_group_moved(shmq_group_state *r, uint64_t receipt, int there)
    int shmq_shared_group_lost(shmq_group_state *r, uint64_t receipt)
    void shmq_shared_group_lows(const shmq_group_state *r, uint64_t *lows)
    int64_t shmq_shared_group_due(const shmq_group_state *r)
