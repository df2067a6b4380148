/* A process's handle of a queue, and the helpers that every part of the core uses.
 *
 * A handle is private memory: the mapping, and pointers to its regions. Functions say "Holds the
 * lock" if the caller must hold it.
 */
#pragma once

#include "base/clock.h"
#include "base/shared_memory.h"
#include "base/status.h"
#include "queue/layout.h"
#include "queue/receipt.h"

struct shmq_queue {
    struct shmq_header *h;
    struct shmq_slot *slots;
    struct shmq_group *groups;
    uint32_t *group_buckets;
    struct shmq_dedupe *dedupe;
    uint32_t *dedupe_buckets;
    struct shmq_attachment *attachments;
    struct shmq_holder *holders;
    uint64_t *timer_keys, *order_keys;
    uint32_t *timer_slots, *order_slots;
    struct shmq_logged *logged;
    uint32_t *fresh, *spent;
    struct shmq_amended *amended;
    struct shmq_failure_type *failures;
    uint64_t *bitmap;
    unsigned char *arena;
    struct shmq_geometry geo; /* private: bounds every index and offset                */
    char *base;
    const struct shmq_process *self; /* this process in the namespace, for the locks   */
    int fd;               /* to back the segment with memory                           */
    uint32_t attachment;  /* ours, or SHMQ_NIL                                         */
    bool owned;           /* our attachment has owned or pinned a slot since it was made */
    uint32_t staged;      /* apart from these: slots staged by it and not committed yet  */
    bool whole;           /* both locks are held, not only the get-side lock           */
    bool damaged;         /* this operation met an index out of bounds                 */
    bool look_for_dead;   /* it is time to check which processes are alive             */
    uint32_t freed;       /* slots or blocks freed in this operation                   */
    bool arrived;         /* a message entered the order in this operation             */
    bool looks;           /* a thread that woke up in this operation will look again    */
    bool slept_long;      /* a thread was woken for room from a long sleep              */
    int64_t due;          /* monotonic ns: a sleeper must look by then: shmq_fall_asleep */
    bool watches;         /* the sleeper is a watcher: shmq_fall_asleep                  */
    uint64_t refused_bytes; /* with NO_SPACE: the bytes that were not available          */
    uint64_t random;      /* state of the jitter                                       */
    const char *wakeup_prefix; /* prefix of the names of the namespace's wakeups       */
    _Atomic uint64_t to_wake; /* parties to wake once the lock is released             */
    uint8_t middle;       /* the priority whose puts go through the inbox              */
    uint32_t leases;      /* granted through this handle, for periodic work              */
    bool journaled;       /* the queue has a journal                                   */
    int64_t patience;     /* ns to spin for the disk, as that has paid                 */
    bool hinted;          /* hints were added since the lock was taken                    */
    struct shmq_seal seal; /* of its receipts                                          */
    struct shmq_slot nowhere; /* where a bad index leads                               */
    struct shmq_group no_group;
};

/* Bounds every index read from shared memory: a bad one marks the handle as damaged and leads to
 * private scratch space, never outside of the mapping. */
static inline struct shmq_slot *shmq_slot_at(struct shmq_queue *q, uint32_t at)
{
    if (__builtin_expect(at >= q->h->slots_made || at >= q->geo.slots_max, 0)) {
        q->damaged = true;
        return &q->nowhere;
    }
    return &q->slots[at];
}

/* The slot of an index from the caller, or read without a lock: NULL if there is none. A purge can
 * remove slots, so an old index is not damage. */
static inline struct shmq_slot *shmq_slot_if_made(const struct shmq_queue *q, uint32_t at)
{
    return at < GET_ATOMIC(q->h->slots_made) && at < q->geo.slots_max ? &q->slots[at] : NULL;
}

/* The same for the slot that a receipt names. */
static inline struct shmq_slot *shmq_slot_named(const struct shmq_queue *q, uint64_t receipt)
{
    return shmq_slot_if_made(q, receipt & SHMQ_RECEIPT_SLOT);
}

static inline struct shmq_group *shmq_group_at(struct shmq_queue *q, uint32_t at)
{
    if (__builtin_expect(at >= q->h->groups_made || at >= q->geo.slots_max, 0)) {
        q->damaged = true;
        return &q->no_group;
    }
    return &q->groups[at];
}

/* The number of the bucket of a group. */
static inline uint32_t shmq_bucket_of(const struct shmq_queue *q, uint64_t hash)
{
    return (uint32_t)hash & (GET_ATOMIC(q->h->group_buckets) - 1) & (q->geo.group_buckets_max - 1);
}

static inline uint32_t shmq_index_of(const struct shmq_queue *q, const struct shmq_slot *s)
{
    return s == &q->nowhere ? SHMQ_NIL : (uint32_t)(s - q->slots);
}

/* ---- the word ---- */

static inline uint64_t shmq_word(const struct shmq_slot *s) { return GET_ACQUIRE(s->word); }

static inline enum shmq_state shmq_state_of(uint64_t word)
{
    return (enum shmq_state)(word & SHMQ_STATE_MASK);
}

static inline uint32_t shmq_deliveries_of(uint64_t word)
{
    return (uint32_t)(word >> SHMQ_DELIVERIES_SHIFT & SHMQ_DELIVERIES_MAX);
}

static inline uint64_t shmq_serial_of(uint64_t word) { return word >> SHMQ_SERIAL_SHIFT; }

static inline uint64_t shmq_receipt_of(uint64_t word, uint32_t at)
{
    return shmq_serial_of(word) << SHMQ_SERIAL_SHIFT | at;
}

static inline uint64_t shmq_make_word(enum shmq_state state, uint64_t flags, uint32_t deliveries,
                                      uint64_t serial)
{
    return (uint64_t)state | flags | (uint64_t)deliveries << SHMQ_DELIVERIES_SHIFT |
           serial << SHMQ_SERIAL_SHIFT;
}

/* The commit. Release: a reader of the word also sees everything that was stored before it. */
static inline void shmq_commit(struct shmq_slot *s, uint64_t word) { SET_RELEASE(s->word, word); }

/* ---- the lane ---- */

static inline uint32_t shmq_priority_of(const struct shmq_slot *s) { return s->lane & 0xF; }

static inline enum shmq_where shmq_where_of(const struct shmq_slot *s)
{
    return (enum shmq_where)(s->lane >> 4 & 7);
}

static inline void shmq_set_where(struct shmq_slot *s, enum shmq_where where)
{
    SET_ATOMIC(s->lane, (uint8_t)((s->lane & (0xF | SHMQ_TAGGED)) | where << 4));
}

/* The order: highest priority first, then lowest sequence number. */
static inline uint64_t shmq_key_of(const struct shmq_slot *s)
{
    return (uint64_t)(15 - shmq_priority_of(s)) << 60 | (s->seq & ((1ull << 60) - 1));
}

static inline void shmq_set_ready(struct shmq_header *h, uint32_t ready)
{
    SET_RELAXED(h->ready, ready);
}

static inline uint32_t shmq_ready(const struct shmq_header *h) { return GET_RELAXED(h->ready); }

static inline uint32_t shmq_inbox_count(const struct shmq_header *h)
{
    return GET_RELAXED(h->inbox_tail) - GET_RELAXED(h->inbox_head);
}

/* Whether a get would find a message: a hint, not to rely on. Needs no lock. */
static inline bool shmq_looks_ready(const struct shmq_header *h)
{
    return shmq_ready(h) || shmq_inbox_count(h);
}

/* The policies that apply now. A pointer to them is for one operation, and not for keeping. Under a
 * lock they are one alteration's; without one each member is, but two members may be of two. */
static inline const struct shmq_policies *shmq_policies_now(const struct shmq_header *h)
{
    return &h->options.policies[GET_ACQUIRE(h->alterations) & 1];
}

/* The sizes that apply now: slots, and units of the arena. They say what is full; the geometry says
 * what is in bounds. */
static inline uint32_t shmq_capacity(const struct shmq_queue *q)
{
    uint32_t capacity = shmq_policies_now(q->h)->capacity;

    return capacity < q->geo.slots_max ? capacity : q->geo.slots_max;
}

static inline uint64_t shmq_units_of(uint64_t bytes) { return (bytes + SHMQ_UNIT - 1) / SHMQ_UNIT; }

static inline uint32_t shmq_units(const struct shmq_queue *q)
{
    uint64_t units = shmq_units_of(shmq_policies_now(q->h)->arena_bytes);

    return units < q->geo.units ? (uint32_t)units : q->geo.units;
}

/* Whether `count` puts would find room: a hint, not to rely on. Needs no lock. */
static inline bool shmq_looks_roomy(const struct shmq_queue *q, uint32_t count)
{
    return GET_ATOMIC(q->h->live) + shmq_inbox_count(q->h) + count <= shmq_capacity(q);
}

/* Whether leases are so short that they need the exact time. */
static inline bool shmq_is_exact(const struct shmq_queue *q)
{
    return shmq_policies_now(q->h)->visibility < 100 * SHMQ_COARSE;
}

static inline void shmq_tick_by(struct shmq_header *h, int64_t when)
{
    if (when < h->next_tick)
        SET_ATOMIC(h->next_tick, when);
}

/* The time, for an operation that sets no timer but a lease's: exact if anything is about to be
 * due, else up to SHMQ_COARSE in the past, at a fourth of the cost. Needs no lock. */
static inline int64_t shmq_time(const struct shmq_queue *q)
{
    int64_t coarse = shmq_coarse_now();

    if (__builtin_expect(coarse + SHMQ_COARSE >= GET_ATOMIC(q->h->next_tick) || shmq_is_exact(q),
                         0))
        return shmq_now();
    return coarse;
}

/* How far shmq_time may lag behind: a lease that begins at it is longer by that, so that none ends
 * early. */
static inline int64_t shmq_lag(const struct shmq_queue *q)
{
    return shmq_is_exact(q) ? 0 : shmq_coarse_lag();
}

/* The result of an operation: `status`, unless it met damage. */
static inline int shmq_outcome(struct shmq_queue *q, int status)
{
    if (__builtin_expect(q->damaged, 0)) {
        q->damaged = false;
        return SHMQ_DAMAGED;
    }
    return status;
}

/* Ensures: no lease of any slot has this serial yet. */
static inline uint64_t shmq_next_serial(struct shmq_header *h)
{
    SET(h->serial, (h->serial + 1) & SHMQ_SERIAL_MAX);
    return h->serial;
}
