# What the binding uses of the C core. The headers in shmq/core are the documentation.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "<stdbool.h>":
    ctypedef bint cbool "bool"


cdef extern from "Python.h":
    ctypedef struct PyInterpreterState:
        pass
    ctypedef struct PyThreadState:
        pass
    PyInterpreterState *PyInterpreterState_Get()
    PyThreadState *PyInterpreterState_ThreadHead(PyInterpreterState *interpreter)
    PyThreadState *PyThreadState_Next(PyThreadState *thread)


cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    sem_t *SEM_FAILED
    sem_t *sem_open(const char *name, int flags)
    int sem_close(sem_t *semaphore)
    int sem_post(sem_t *semaphore)
    int sem_trywait(sem_t *semaphore)
    int sem_getvalue(sem_t *semaphore, int *value)


cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef extern from "<sys/mman.h>" nogil:
    enum: PROT_READ, PROT_WRITE, MAP_SHARED
    void *MAP_FAILED
    void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void *address, size_t length)


cdef extern from "base/status.h" nogil:
    enum: SHMQ_OK, SHMQ_FULL, SHMQ_EMPTY, SHMQ_TOO_LARGE, SHMQ_STALE, SHMQ_DUPLICATE
    enum: SHMQ_NO_SPACE, SHMQ_DELETED, SHMQ_BUSY, SHMQ_DAMAGED, SHMQ_TRUNCATED
    enum: SHMQ_INCOMPATIBLE, SHMQ_NOT_READY, SHMQ_CROWDED, SHMQ_INTERRUPTED, SHMQ_TIMED_OUT


cdef extern from "queue/layout.h" nogil:
    enum: SHMQ_LAYOUT_VERSION, SHMQ_MAGIC, SHMQ_PAGE, SHMQ_NIL, SHMQ_UNIT
    enum: SHMQ_NOT_EMPTY, SHMQ_NOT_FULL, SHMQ_OPEN, SHMQ_GONE, SHMQ_NAME_BYTES, SHMQ_PARTIES
    enum: SHMQ_MAX_CAPACITY, SHMQ_MAX_PRIORITIES, SHMQ_NAME_MAX
    enum: SHMQ_FREE, SHMQ_READY, SHMQ_DELAYED, SHMQ_LEASED, SHMQ_DEAD, SHMQ_MOVING, SHMQ_RING

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
        uint8_t reserved[7]
        char name[104]
        char dead_letter[104]
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
        uint64_t recoveries
        uint32_t slots_made, attachments_made, units_used, units_cached
        uint32_t asleep[2]
        shmq_sample samples[2]
        int64_t next_tick
        shmq_journal journal

    struct shmq_attachment:
        uint64_t process
        int64_t since
        uint32_t pid, leases
        char name[32]

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
        int fd
        uint32_t attachment
        cbool look_for_dead, damaged, journaled
        uint8_t middle
        uint32_t freed
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
    void shmq_bind(shmq_queue *q, void *base, int fd, const shmq_geometry *geo)
    int shmq_prepare(shmq_queue *q, const shmq_options *options)
    void shmq_announce(shmq_queue *q)
    int shmq_inspect(const void *base, uint64_t mapped, uint64_t size, shmq_geometry *geo)
    uint32_t shmq_version_of(const void *base)


cdef extern from "queue/backing.h" nogil:
    int shmq_back(shmq_queue *q, uint64_t offset, uint64_t size)


cdef extern from "queue/change_hints.h" nogil:
    uint64_t shmq_synced(const shmq_queue *q)
    void shmq_request_sync(shmq_queue *q, uint64_t seq)
    int shmq_wait_synced(shmq_queue *q, uint64_t seq, int64_t ns)


cdef extern from "base/lock_holder.h" nogil:
    int64_t shmq_patience(int64_t waited, int64_t until, uint32_t holder)
    void shmq_limit_patience(int64_t ns)


cdef extern from "queue/lock.h" nogil:
    int shmq_lock(shmq_queue *q)
    int shmq_lock_slowly(shmq_queue *q, int64_t ns)
    int shmq_lock_even_deleted(shmq_queue *q, int64_t ns)
    uint32_t shmq_lock_holder(const shmq_queue *q)
    int shmq_lock_gets(shmq_queue *q)
    void shmq_unlock(shmq_queue *q, uint32_t *post)
    int shmq_lock_puts(shmq_queue *q)
    cbool shmq_unlock_puts(shmq_queue *q)


cdef extern from "queue/put_ring.h" nogil:
    cbool shmq_is_plain(const shmq_queue *q, const shmq_put *put)
    int64_t shmq_put_time(const shmq_queue *q, const shmq_put *put)
    int shmq_quick_put(shmq_queue *q, const shmq_put *put, int64_t now, uint64_t *seq)
    void shmq_inbox_take(shmq_queue *q, uint32_t most)


cdef extern from "queue/wait.h" nogil:
    void shmq_fall_asleep(shmq_queue *q, int event)
    void shmq_post(sem_t **semaphores, const uint32_t *post)
    void shmq_wake_up(shmq_queue *q, int event, cbool taken, int left)
    void shmq_pass_on(shmq_queue *q, int event)
    int shmq_sleep(sem_t *semaphore, int64_t ns)
    int64_t shmq_spin(shmq_queue *q, int event, int64_t ns)


cdef extern from "queue/wakeup.h" nogil:
    struct shmq_watch:
        int event
        cbool filtered
        uint32_t n, party
        int64_t seen, due
    uint64_t shmq_armed(const shmq_header *h, int event)
    int shmq_arm(shmq_queue *q, shmq_watch *w, uint64_t process)
    void shmq_disarm(shmq_queue *q, const shmq_watch *w)
    cbool shmq_is_woken(const shmq_queue *q, const shmq_watch *w, cbool closely)
    int64_t shmq_watch_due(const shmq_queue *q, const shmq_watch *w)
    void shmq_watch_time(shmq_queue *q, shmq_watch *w, int64_t now)


cdef extern from "queue/wakeup_post.h" nogil:
    cbool shmq_must_wake(shmq_queue *q)
    void shmq_wake_parties(shmq_queue *q)
    void shmq_post_wakeup(sem_t *wakeup)
    void shmq_wakeups_forked()


cdef extern from "<time.h>" nogil:
    enum: CLOCK_MONOTONIC


cdef extern from "base/clock.h" nogil:
    int64_t shmq_read_clock(int clock)
    int64_t shmq_clock_set
    int64_t shmq_now()
    int64_t shmq_wall()
    int64_t shmq_coarse_now()


cdef extern from "queue/timer.h" nogil:
    void shmq_tick(shmq_queue *q, int64_t now)
    int64_t shmq_next_due(shmq_queue *q)


cdef extern from "queue/attachments.h" nogil:
    int shmq_attach(shmq_queue *q, uint64_t process, uint32_t pid, const char *name)
    void shmq_reclaim(shmq_queue *q, uint32_t at, uint64_t process, int64_t now)
    void shmq_retire(shmq_queue *q, int64_t now)


cdef extern from "queue/arena.h" nogil:
    uint32_t shmq_arena_largest(shmq_queue *q)


cdef extern from "base/siphash.h" nogil:
    void shmq_siphash(uint64_t key, const void *data, size_t size, uint64_t *hash)


cdef extern from "queue/check.h" nogil:
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

    int shmq_fits(const shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes)
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
    int shmq_lease_for(shmq_queue *q, int64_t now, int64_t ns, cbool handed, shmq_view *view)
    int shmq_lease_at(shmq_queue *q, uint32_t at, uint64_t seq, int64_t now, int64_t ns,
                      shmq_view *view)
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
    int shmq_return_unseen(shmq_queue *q, uint64_t receipt, int64_t now)
    int shmq_purge(shmq_queue *q, uint64_t *removed)
    int shmq_pin(shmq_queue *q, uint64_t receipt, int64_t now, shmq_view *view)
    int shmq_pin_at(shmq_queue *q, uint32_t at, uint64_t seq, shmq_view *view)
    void shmq_unpin(shmq_queue *q, uint32_t at)
    void shmq_look(shmq_queue *q, shmq_slot *s, shmq_view *view)


cdef extern from "queue/filter.h" nogil:
    const uint32_t SHMQ_FILTER_BYTES

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


cdef extern from "queue/select.h" nogil:
    struct shmq_choice:
        cbool more
    void shmq_select_begin(const shmq_queue *q, shmq_choice *choice, const shmq_filter *filter)
    int shmq_select(shmq_queue *q, shmq_choice *choice, int64_t now, cbool handed,
                    shmq_view *view)
    void shmq_select_again(shmq_choice *choice)


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
    enum: SHMQ_CODEC_OTHER
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


cdef extern from "queue/row_chunk.h" nogil:
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


cdef extern from "base/crash_points.h" nogil:
    void shmq_mark()


cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT, MSG_NOSIGNAL
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr *message, int flags)


cdef extern from "protocol/frame.h" nogil:
    enum: SHMQ_T_HELLO, SHMQ_T_PEEK
    enum: SHMQ_S_OK, SHMQ_S_QUEUE_EMPTY, SHMQ_S_NO_QUEUE, SHMQ_S_INTERNAL, SHMQ_S_NO_SPACE
    enum: SHMQ_S_BAD_MAGIC, SHMQ_S_BUSY

    struct shmq_frame:
        uint32_t length, id
        uint8_t type


cdef extern from "queue/slot.h" nogil:
    unsigned char *shmq_meta_of(shmq_queue *q, shmq_slot *s)
