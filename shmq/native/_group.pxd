# What _group_state.pyx takes from the C core.

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "base/clock.h":
    int64_t shmq_clock_set
    int64_t shmq_now() nogil
    int64_t shmq_wall() nogil

cdef extern from "base/lock_holder.h":
    int64_t shmq_patience(int64_t waited, int64_t until, uint32_t holder)
    void shmq_limit_patience(int64_t ns)

cdef extern from "stream/group_state.h":
    enum: SHMQ_OK, SHMQ_FULL, SHMQ_EMPTY, SHMQ_STALE, SHMQ_DELETED, SHMQ_BUSY
    enum: SHMQ_TRUNCATED, SHMQ_INCOMPATIBLE, SHMQ_NOT_READY, SHMQ_CROWDED
    enum: SHMQ_MAX_MEMBERS, SHMQ_MAX_GROUP_PARTITIONS, SHMQ_MAX_HELD, SHMQ_MEMBER_NAME, SHMQ_GONE
    enum: SHMQ_NAME_BYTES
    uint64_t SHMQ_NO_OFFSET

    struct shmq_group_state_options:
        uint64_t group_id
        uint64_t stream_id
        int64_t created_at
        int64_t session
        int64_t lease
        uint32_t assignment
        uint32_t latest
        uint32_t max_deliveries
        uint32_t held
        char dead_letter[104]

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
        uint32_t capacity

    uint64_t shmq_group_state_bytes(const shmq_group_state_options *options)
    int shmq_group_state_format(void *base, uint64_t bytes, const shmq_group_state_options *options)
    int shmq_group_state_open(shmq_group_state *r, void *base, uint64_t size)
    int shmq_group_state_lock(shmq_group_state *r, int64_t ns) nogil
    uint32_t shmq_group_state_holder(const shmq_group_state *r)
    void shmq_group_state_unlock(shmq_group_state *r)
    void shmq_group_state_close(shmq_group_state *r)
    int shmq_group_state_widen(shmq_group_state *r, uint32_t partitions)
    int shmq_group_state_join(shmq_group_state *r, uint64_t process, const char *name, int64_t now,
                         uint32_t *at, uint64_t *id)
    int shmq_group_state_leave(shmq_group_state *r, uint64_t id, bint evicted, int64_t now)
    int shmq_group_state_beat(shmq_group_state *r, uint32_t at, uint64_t id, int64_t now)
    bint shmq_group_state_watch(shmq_group_state *r, int64_t ns, int64_t now)
    uint64_t shmq_group_state_silent(const shmq_group_state *r, int64_t now)
    int shmq_group_state_plan(shmq_group_state *r, uint64_t epoch, const uint64_t *whom, uint32_t n)
    int shmq_group_partition_claim(shmq_group_state *r, uint32_t partition, uint64_t id)
    int shmq_group_partition_release(shmq_group_state *r, uint32_t partition, uint64_t id)
    int shmq_group_partition_commit(shmq_group_state *r, uint32_t partition, uint64_t id, uint64_t offset,
                         int64_t wall)

cdef extern from "stream/shared_group.h":
    struct shmq_lent:
        uint64_t receipt
        uint64_t offset
        uint32_t partition
        uint32_t deliveries

    void shmq_shared_group_begin(shmq_group_state *r, uint32_t partition, uint64_t offset)
    int shmq_shared_group_lend(shmq_group_state *r, uint64_t id, uint32_t partition, uint64_t earliest,
                        uint64_t latest, uint32_t limit, int64_t now, shmq_lent *lent,
                        uint32_t *count)
    uint32_t shmq_shared_group_again(shmq_group_state *r, uint64_t id, uint32_t limit, int64_t now,
                              shmq_lent *lent)
    int shmq_shared_group_hand(shmq_group_state *r, uint64_t receipt, int64_t now)
    int shmq_shared_group_ack(shmq_group_state *r, uint64_t receipt, int64_t now)
    int shmq_shared_group_nack(shmq_group_state *r, uint64_t receipt, int64_t delay, int64_t now)
    int shmq_shared_group_reject(shmq_group_state *r, uint64_t receipt, int64_t now)
    int shmq_shared_group_extend(shmq_group_state *r, uint64_t receipt, int64_t ns, int64_t now)
    int shmq_shared_group_bury(shmq_group_state *r, uint64_t id, int64_t now, shmq_lent *lent)
    int shmq_shared_group_buried(shmq_group_state *r, uint64_t receipt, int there)
    int shmq_shared_group_lost(shmq_group_state *r, uint64_t receipt)
    void shmq_shared_group_lows(const shmq_group_state *r, uint64_t *lows)
    int64_t shmq_shared_group_due(const shmq_group_state *r)

cdef extern from "base/crash_points.h":
    void shmq_mark()
