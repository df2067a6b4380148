# The queue of the C core: shmq/core/queue. The headers document it.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from core.base cimport cbool, sem_t, shmq_process


cdef extern from "queue/layout.h" nogil:
    enum: SHMQ_LAYOUT_VERSION, SHMQ_MAGIC, SHMQ_PAGE, SHMQ_NIL, SHMQ_UNIT
    enum: SHMQ_NOT_EMPTY, SHMQ_NOT_FULL, SHMQ_OPEN, SHMQ_GONE, SHMQ_NAME_BYTES
    enum: SHMQ_MAX_CAPACITY, SHMQ_MAX_PRIORITIES, SHMQ_NAME_MAX
    enum: SHMQ_FREE, SHMQ_READY, SHMQ_LEASED, SHMQ_DEAD, SHMQ_MOVING
    enum: SHMQ_ALIVE, SHMQ_REJECTED, SHMQ_EXHAUSTED, SHMQ_EXPIRED_TTL, SHMQ_REASONS
    enum: SHMQ_HOLDERS
    enum: SHMQ_BLOCK, SHMQ_DROP_OLDEST, SHMQ_MAX_ATTACHMENTS, SHMQ_RECEIPT_SLOT

    struct shmq_sample:
        int64_t at
        uint64_t inflow "in"
        uint64_t outflow "out"

    struct shmq_list:
        uint32_t head, tail

    struct shmq_options:
        # struct of a queue: made by tools/options.py
        uint64_t queue_id
        uint64_t arena_bytes
        uint64_t max_message_bytes
        int64_t created_at
        int64_t visibility
        int64_t ttl
        int64_t dead_letter_ttl
        int64_t retry
        int64_t retry_max
        int64_t dedupe_window
        int64_t snapshot_interval
        uint64_t hash_key
        uint32_t capacity
        uint32_t priorities
        uint32_t max_deliveries
        uint8_t overflow
        uint8_t drop_expired
        uint8_t dead_letters
        uint8_t durability
        uint8_t confirm
        uint8_t auto_delete
        uint8_t exclusive
        uint8_t reserved[5]
        char name[SHMQ_NAME_BYTES]
        char dead_letter[SHMQ_NAME_BYTES]
        int64_t expires
        # end

    struct shmq_journal:
        uint32_t error
        uint64_t segment, offset, writer, awaited, synced, batch
        uint64_t bytes, commits, puts, settles, snapshot_bytes
        int64_t synced_at, snapshot_at

    struct shmq_header:
        shmq_options options
        shmq_journal journal
        uint64_t fresh_tail
        uint32_t spent
        uint32_t state
        uint64_t segment_bytes
        uint64_t last_seq
        uint32_t visible, live, delayed, leased, dead, staged
        shmq_list dying
        uint64_t acked, redelivered, nacked, expired, dead_lettered, dropped, deduped
        uint64_t dead_lettered_by[SHMQ_REASONS]
        uint64_t dropped_by[SHMQ_REASONS]
        uint64_t recoveries
        uint32_t slots_made, attachments_made, units_used, units_cached
        uint32_t asleep[2]
        shmq_sample samples[2]
        int64_t next_tick, liveness_at
        uint32_t consumed
        shmq_journal journal

    struct shmq_attachment:
        uint64_t process
        int64_t since
        uint32_t pid, leases
        uint32_t asleep[2]
        char name[31]
        uint8_t consumes

    struct shmq_slot:
        uint64_t seq
        uint32_t meta_bytes
        uint8_t reason, codec
        int64_t put_at
        uint64_t origin_queue, origin_seq

    struct shmq_geometry:
        uint64_t segment_bytes
        uint32_t units


cdef extern from "queue/receipt.h" nogil:
    struct shmq_seal:
        pass
    uint64_t c_seal "shmq_seal"(const shmq_seal *seal, uint64_t receipt)
    uint64_t c_unseal "shmq_unseal"(const shmq_seal *seal, uint64_t sealed)


cdef extern from "queue/queue.h" nogil:
    struct shmq_queue:
        shmq_header *h
        shmq_slot *slots
        shmq_attachment *attachments
        shmq_geometry geo
        const shmq_process *self
        int fd
        uint32_t attachment
        cbool look_for_dead, damaged, journaled
        uint8_t middle
        uint32_t freed
        cbool slept_long
        int64_t due
        uint64_t refused_bytes
        const char *wakeup_prefix
        shmq_seal seal
    uint64_t shmq_word(const shmq_slot *s)
    uint32_t shmq_inbox_count(const shmq_header *h)
    int shmq_state_of(uint64_t word)
    cbool shmq_looks_ready(const shmq_header *h)
    cbool shmq_looks_roomy(const shmq_queue *q, uint32_t count)
    int64_t shmq_time(const shmq_queue *q)


cdef extern from "queue/segment.h" nogil:
    void shmq_lay_out(const shmq_options *options, shmq_geometry *geo)
    void shmq_bind(shmq_queue *q, void *base, int fd, const shmq_geometry *geo,
                   const shmq_process *self)
    void shmq_prepare(shmq_queue *q, const shmq_options *options)
    void shmq_announce(shmq_queue *q)
    int shmq_inspect(const void *base, uint64_t mapped, uint64_t size, shmq_geometry *geo)
    uint32_t shmq_version_of(const void *base)


cdef extern from "queue/segment.h" nogil:
    int shmq_back(shmq_queue *q, uint64_t offset, uint64_t size)


cdef extern from "queue/change_hints.h" nogil:
    uint64_t shmq_synced(const shmq_queue *q)
    void shmq_request_sync(shmq_queue *q, uint64_t seq)
    uint32_t shmq_journal_error(const shmq_queue *q)
    int shmq_wait_synced(shmq_queue *q, uint64_t seq, int64_t ns)
    void shmq_wake_writer(shmq_queue *q)
    void shmq_wake_synced(shmq_queue *q)


cdef extern from "queue/lock.h" nogil:
    int shmq_lock(shmq_queue *q)
    int shmq_lock_slowly(shmq_queue *q, int64_t ns)
    int shmq_lock_even_deleted(shmq_queue *q, int64_t ns)
    uint64_t shmq_lock_holder(const shmq_queue *q)
    int shmq_lock_gets(shmq_queue *q)
    void shmq_unlock(shmq_queue *q, uint32_t *post)
    int shmq_lock_puts(shmq_queue *q)
    cbool shmq_unlock_puts(shmq_queue *q)


cdef extern from "queue/put_ring.h" nogil:
    cbool shmq_is_plain(const shmq_queue *q, const shmq_put *put)
    int shmq_quick_put(shmq_queue *q, const shmq_put *put, int64_t now, uint64_t *seq)


cdef extern from "queue/wait.h" nogil:
    void shmq_fall_asleep(shmq_queue *q, int event)
    void shmq_post(sem_t **semaphores, const uint32_t *post)
    void shmq_wake_up(shmq_queue *q, int event, cbool taken, int left)
    void shmq_pass_on(shmq_queue *q, int event)
    void shmq_post_anew(shmq_queue *q)
    int64_t SHMQ_SHORT_SLEEP, SHMQ_LONG_SLEEP
    int shmq_sleep(sem_t *semaphore, int64_t ns)
    int64_t shmq_spin(shmq_queue *q, int event, int64_t ns, int64_t yield_after)


cdef extern from "queue/wakeup.h" nogil:
    struct shmq_watch:
        int event
        cbool filtered
        uint32_t n, party
        int64_t due
    uint64_t shmq_armed(const shmq_header *h, int event)
    int shmq_arm(shmq_queue *q, shmq_watch *w, uint64_t process)
    void shmq_disarm(shmq_queue *q, const shmq_watch *w)
    cbool shmq_is_woken(const shmq_queue *q, const shmq_watch *w, cbool closely)
    void shmq_watch_time(shmq_queue *q, shmq_watch *w, int64_t now)


cdef extern from "queue/wakeup.h" nogil:
    cbool shmq_must_wake(shmq_queue *q)
    void shmq_wake_parties(shmq_queue *q)
    void shmq_select_own(shmq_queue *q)
    void shmq_post_wakeup(sem_t *wakeup)
    void shmq_wakeups_forked()


cdef extern from "queue/index.h" nogil:
    int64_t shmq_next_due(shmq_queue *q)


cdef extern from "queue/transition.h" nogil:
    void shmq_tick(shmq_queue *q, int64_t now)


cdef extern from "queue/segment.h" nogil:
    int shmq_attach(shmq_queue *q, uint64_t process, uint32_t pid, const char *name)
    void shmq_reclaim(shmq_queue *q, uint32_t at, uint64_t process, int64_t now)
    void shmq_retire(shmq_queue *q, int64_t now)
    void shmq_consume(shmq_queue *q)
    void shmq_renew(shmq_queue *q, int64_t now)
    cbool shmq_is_unused(const shmq_queue *q, int64_t now)


cdef extern from "queue/slot.h" nogil:
    uint32_t shmq_arena_largest(shmq_queue *q)


cdef extern from "queue/recover.h" nogil:
    const char *shmq_check(shmq_queue *q)
    uint32_t shmq_check_all(shmq_queue *q, const char **wrong, uint32_t most)


cdef extern from "queue/message.h" nogil:
    struct shmq_put "shmq_put":
        const void *body
        const void *meta
        const void *tail
        uint32_t tail_bytes
        uint64_t body_bytes
        uint32_t meta_bytes
        uint8_t priority, codec
        int64_t delay, ttl
        uint64_t group
        const uint64_t *dedupe
        uint64_t origin_queue, origin_seq
        uint32_t row

    struct shmq_view:
        uint64_t word, receipt, seq, group
        const unsigned char *body
        const unsigned char *meta
        uint32_t at, body_bytes, meta_bytes, deliveries
        uint8_t priority, codec, reason
        int64_t put_at, deadline, expires, dead_at

    struct shmq_leased_view:
        uint64_t seq, process
        int64_t deadline
        uint32_t pid, body_bytes, deliveries
        uint8_t priority
        char name[32]

    uint32_t shmq_leases_in(shmq_queue *q, uint32_t start, uint32_t end, uint64_t after,
                            shmq_leased_view *held)
    int shmq_fits(const shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes)
    void shmq_fetch_bucket(const shmq_queue *q, uint64_t group)
    int64_t shmq_time_of_put(const shmq_queue *q, const shmq_put *put)
    int c_put "shmq_put"(shmq_queue *q, const shmq_put *put, int64_t now, uint64_t *seq)
    int shmq_reserve(shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes, int64_t now,
                     const uint64_t *dedupe, shmq_view *view, uint64_t *seq)
    int shmq_fill(shmq_queue *q, uint64_t receipt, const shmq_put *put, int64_t now,
                  uint64_t *seq)
    int shmq_stage(shmq_queue *q, uint64_t receipt, const shmq_put *put, int64_t now)
    int shmq_stage_row(shmq_queue *q, const shmq_put *put, uint32_t ids, int64_t now,
                       uint64_t *receipt)
    enum: SHMQ_DEFERRED_PUT_BYTES
    uint32_t shmq_deferred_put_bytes(const shmq_queue *q, const shmq_put *put)
    int shmq_abandon(shmq_queue *q, uint64_t receipt)
    int shmq_commit_staged(shmq_queue *q, uint64_t receipt, int64_t now)
    int shmq_lease(shmq_queue *q, int64_t now, cbool handed, shmq_view *view)
    int shmq_hand(shmq_queue *q, uint64_t receipt, int64_t now)
    cbool shmq_holds(shmq_queue *q, uint64_t receipt, int64_t now)
    uint64_t shmq_held_by_us(shmq_queue *q, uint64_t receipt, int64_t now)
    int shmq_mark_acked(shmq_queue *q, uint64_t receipt, int64_t now)
    int shmq_finish(shmq_queue *q, uint64_t receipt)
    int shmq_ack(shmq_queue *q, uint64_t receipt, int64_t now)
    int shmq_nack(shmq_queue *q, uint64_t receipt, int64_t delay, int64_t now)
    int shmq_reject(shmq_queue *q, uint64_t receipt, int64_t now)
    int shmq_extend(shmq_queue *q, uint64_t receipt, int64_t ns, int64_t now)
    int shmq_return(shmq_queue *q, uint64_t receipt, int64_t now)
    int shmq_return_unseen(shmq_queue *q, uint64_t receipt, int64_t delay, int64_t now)
    int shmq_purge(shmq_queue *q, uint64_t *removed)
    int shmq_pin(shmq_queue *q, uint64_t receipt, int64_t now, shmq_view *view)
    int shmq_pin_at(shmq_queue *q, uint32_t at, uint64_t seq, shmq_view *view)
    void shmq_unpin(shmq_queue *q, uint32_t at)
    void shmq_look(shmq_queue *q, shmq_slot *s, shmq_view *view)


cdef extern from "queue/holder.h" nogil:
    struct shmq_claim:
        uint64_t hash, token
    uint64_t shmq_hash_name(const shmq_queue *q, const void *name, size_t bytes)
    int shmq_claim_name(shmq_queue *q, uint64_t hash, const char *name, size_t bytes,
                        shmq_claim *claim)
    uint32_t shmq_holder_of(const shmq_queue *q, const shmq_claim *claim, cbool *known)
    void shmq_forget_name(shmq_queue *q, const shmq_claim *claim)


cdef extern from "queue/run.h" nogil:
    struct shmq_run:
        pass
    void shmq_run_begin(shmq_run *run, const shmq_claim *claim, uint32_t epoch)
    void shmq_run_end(shmq_run *run)
    int shmq_run_lease(shmq_queue *q, shmq_run *run, int64_t now, int64_t ns, shmq_view *view)
    int shmq_run_lease_at(shmq_queue *q, shmq_run *run, uint32_t at, uint64_t seq, int64_t now,
                          int64_t ns, shmq_view *view)

    struct shmq_tagged:
        uint64_t seq
        uint32_t at, epoch
    int shmq_find_tagged(shmq_queue *q, const shmq_claim *claim, shmq_tagged **found,
                         uint32_t *count)
    int shmq_lease_tagged(shmq_queue *q, const shmq_claim *claim, const shmq_tagged *which,
                          int64_t now, int64_t ns, shmq_view *view)
    int shmq_ack_tagged(shmq_queue *q, const shmq_claim *claim, const shmq_tagged *which)
    int shmq_return_tagged(shmq_queue *q, const shmq_claim *claim, const shmq_tagged *which,
                           int64_t now)


cdef extern from "queue/filter.h" nogil:
    const uint32_t SHMQ_FILTER_BYTES
    enum: SHMQ_OP_NOT, SHMQ_OP_AND, SHMQ_OP_OR, SHMQ_OP_TEST
    enum: SHMQ_FIELD_REASON, SHMQ_FIELD_QUEUE, SHMQ_FIELD_DELIVERIES, SHMQ_FIELD_AT
    enum: SHMQ_FIELD_AGE, SHMQ_FIELD_GROUP, SHMQ_FIELD_CORRELATION, SHMQ_FIELD_CODEC
    enum: SHMQ_FIELD_PRIORITY, SHMQ_FIELD_SEQUENCE, SHMQ_FIELD_SIZE, SHMQ_FIELD_HEADER
    enum: SHMQ_IS_EQUAL, SHMQ_IS_LESS, SHMQ_IS_AT_MOST, SHMQ_IS_MORE, SHMQ_IS_AT_LEAST
    enum: SHMQ_IS_LIKE
    enum: SHMQ_CONST_NIL, SHMQ_CONST_BOOL, SHMQ_CONST_INT, SHMQ_CONST_REAL, SHMQ_CONST_TEXT

    struct shmq_filter:
        const unsigned char *code
        uint32_t bytes

    struct shmq_facts:
        const unsigned char *meta
        uint32_t meta_bytes, size
        uint64_t seq
        uint8_t priority, codec
        int64_t wall

    const char *shmq_filter_fault(const shmq_filter *filter)
    cbool shmq_filter_matches(const shmq_filter *filter, const shmq_facts *facts)


cdef extern from "queue/filter.h" nogil:
    struct shmq_selection:
        cbool more
    void shmq_select_begin(const shmq_queue *q, shmq_selection *choice, const shmq_filter *filter)
    int shmq_select(shmq_queue *q, shmq_selection *choice, int64_t now, cbool handed,
                    shmq_view *view)
    void shmq_select_again(shmq_selection *choice)


cdef extern from "queue/packed_batch.h" nogil:
    const uint32_t SHMQ_PACKED_VARIES
    struct shmq_packed:
        uint64_t bytes
        const unsigned char *lengths
        uint32_t count, size

    bint shmq_packed_read(const unsigned char *body, uint64_t bytes, shmq_packed *packed)
    uint32_t shmq_packed_length(const shmq_packed *packed, uint32_t record)


cdef extern from "queue/transfer.h" nogil:
    int shmq_take_dead(shmq_queue *q, shmq_view *view)
    int shmq_take(shmq_queue *q, uint32_t at, uint64_t seq, shmq_view *view)
    int shmq_moved(shmq_queue *q, uint64_t receipt)
    int shmq_untake(shmq_queue *q, uint64_t receipt)
    int shmq_give_up(shmq_queue *q, uint64_t receipt)
    int shmq_moved_rows(shmq_queue *q, uint64_t receipt, uint32_t rows)
    void shmq_void_copies(shmq_queue *q, uint64_t origin_queue, uint64_t origin_seq,
                          uint32_t rows)
    const uint32_t SHMQ_NO_ROW
    struct shmq_origin:
        uint64_t receipt, queue, seq
        uint32_t row
    int shmq_find_orphan(shmq_queue *q, uint32_t start, shmq_origin *origin)
    void shmq_disown(shmq_queue *q, uint64_t receipt)
    cbool shmq_still_moves(shmq_queue *q, uint64_t seq, uint32_t row)


cdef extern from "queue/properties.h" nogil:
    enum: SHMQ_CODEC_BYTES, SHMQ_CODEC_TEXT, SHMQ_CODEC_PACKED, SHMQ_CODECS, SHMQ_CODEC_OTHER
    const char *shmq_codec_name(uint8_t number)
    struct shmq_text:
        const unsigned char *at
        uint32_t bytes
    struct shmq_properties:
        shmq_text group, dedupe, codec
    const char *shmq_properties_read(const unsigned char *at, uint32_t bytes,
                                     shmq_properties *properties)
    const char *shmq_properties_apply(const shmq_queue *q, const shmq_properties *properties,
                                      shmq_put *put, uint64_t *hash)
    uint8_t shmq_codec_number(shmq_text name)


cdef extern from "queue/transfer.h" nogil:
    enum: SHMQ_ROW_CHUNK_HEAD
    struct shmq_row_chunk:
        const unsigned char *at
        const unsigned char *end
        uint32_t rows, row
        uint64_t target
        uint64_t hash[2]

    unsigned char *shmq_row_chunk_begin(unsigned char *to, uint32_t rows, uint64_t target)
    uint64_t shmq_row_bytes(const shmq_put *put)
    unsigned char *shmq_row_write(unsigned char *to, const shmq_put *put)
    cbool shmq_row_chunk_read(shmq_row_chunk *chunk, const unsigned char *at, uint64_t bytes)
    cbool shmq_row_read(shmq_row_chunk *chunk, shmq_put *put)


cdef extern from "queue/slot.h" nogil:
    unsigned char *shmq_meta_of(shmq_queue *q, shmq_slot *s)


cdef extern from "queue/columns.h" nogil:
    enum: SHMQ_COLUMNS

    struct shmq_columns_layout:
        uint32_t count
        uint64_t offset[SHMQ_COLUMNS]
        uint64_t bytes[SHMQ_COLUMNS]
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


cdef extern from "queue/snapshot_read.h" nogil:
    uint64_t shmq_search_room(uint32_t count)
    void shmq_search(const shmq_queue *q, const uint64_t *seqs, uint32_t count, uint32_t *at,
                     uint32_t *table, uint64_t room)
