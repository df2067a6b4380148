# What the binding of streams uses of the C core. The headers in shmq/core are the documentation.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from _queue_c cimport cbool


cdef extern from "base/msgpack.h" nogil:
    bint shmq_msgpack_is_map(const void *bytes, size_t size)


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
        char name[104]
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
    enum: SHMQ_OUT_OF_RANGE, SHMQ_GAP, SHMQ_MALFORMED, SHMQ_SEALED
    struct shmq_log:
        shmq_log_header *h
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
    struct shmq_log_piece:
        const shmq_log_item *items
        uint32_t count
        int64_t timestamp
        cbool produced, gaps
        uint64_t producer, sequence
    struct shmq_log_appended:
        uint64_t first, records
        int64_t timestamp
        uint64_t expected
        cbool duplicate
    struct shmq_log_extent:
        uint64_t begin, end, first, next, bytes, entries
        bint packed
        int64_t seen
    struct c_bounds "shmq_log_bounds":
        uint64_t earliest, latest, oldest, committed
        int64_t earliest_at, latest_at
    void shmq_log_lay_out(const shmq_log_options *options, shmq_log_geometry *geo)
    void shmq_log_bind(shmq_log *log, void *base, int fd, const shmq_log_geometry *geo,
                       const shmq_log_options *options, shmq_stream *stream)
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
    uint32_t shmq_log_holder(const shmq_log *log)
    void shmq_log_unlock(shmq_log *log)
    int shmq_log_append(shmq_log *log, const shmq_log_piece *piece, shmq_log_appended *out)
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
    uint32_t shmq_log_arm(shmq_log *log)
    cbool shmq_log_spin(shmq_log *log, uint64_t position, int64_t ns)
    int shmq_stream_sleep(shmq_stream *stream, uint32_t wakeup, int64_t ns)
    uint32_t shmq_log_room(shmq_log *log)
    int shmq_log_wait_room(shmq_log *log, uint32_t room, int64_t ns)
    void shmq_log_mark_synced(shmq_log *log, uint64_t offset)
    void shmq_log_fail(shmq_log *log, uint32_t error)
    int shmq_log_wait_synced(shmq_log *log, uint64_t offset, int64_t ns)
    uint64_t shmq_log_committed(const shmq_log *log)
