/* The life of a message: the operations of the queue. All hold the lock, unless stated otherwise.
 *
 *   put ──► READY ──lease──► LEASED ──ack──► (ACKED) ──► FREE
 *    │        ▲  ▲              │
 *    └► DELAYED  └──nack, expiry, death of the holder
 *                               └──limit, reject, ttl──► DEAD ──moved──► the other queue
 */
#pragma once

#include "queue/queue.h"

/* Bytes of the caller. */
struct shmq_text {
    const unsigned char *at; /* NULL: absent        */
    uint32_t bytes;
};

/* The arguments of a put. Times in ns. */
struct shmq_put {
    const void *body;
    const void *meta;
    const void *tail;        /* the body's end, if it is stored apart from the rest     */
    uint32_t tail_bytes;
    uint64_t body_bytes;     /* with the tail                                           */
    uint32_t meta_bytes;
    uint8_t priority;
    uint8_t codec;
    int64_t delay;           /* 0: none                                             */
    int64_t ttl;             /* 0: the queue's; -1: none at all                     */
    uint64_t group;          /* 0: none                                             */
    const uint64_t *dedupe;  /* 128 bits, or NULL                                   */
    uint64_t origin_queue;   /* staged messages: see queue/layout.h                       */
    uint64_t origin_seq;
    uint32_t row;            /* of a chunk's row: its number there + 1; 0: not a row    */
};

/* The result of a lease, or of a look at a slot. */
struct shmq_view {
    uint64_t word;
    uint64_t receipt;
    uint64_t seq;
    uint64_t group;
    const unsigned char *body;
    const unsigned char *meta;
    uint32_t at;
    uint32_t body_bytes;
    uint32_t meta_bytes;
    uint32_t deliveries;     /* including this one                                  */
    uint8_t priority;
    uint8_t codec;
    uint8_t reason;
    int64_t put_at;
    int64_t deadline;
    int64_t expires;
    int64_t dead_at;
};

/* A leased message and its holder, to be shown: without a receipt, so that nobody who sees it can
 * settle it. */
struct shmq_leased_view {
    uint64_t seq;
    int64_t deadline;
    uint64_t process;        /* its number in the namespace; 0: not known               */
    uint32_t pid;            /* for display                                             */
    uint32_t body_bytes;
    uint32_t deliveries;     /* including this one if it was handed out                 */
    uint8_t priority;
    char name[32];           /* the process's                                           */
};

/* SHMQ_TOO_LARGE if a queue with these options can never hold it. Needs no lock. */
int shmq_fits(const struct shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes);

/* When the message of a put expires, in ns from its put; 0 or less: never. */
static inline int64_t shmq_ttl_of(const struct shmq_queue *q, const struct shmq_put *put)
{
    return put->ttl ? put->ttl : shmq_policies_now(q->h)->ttl;
}

/* The time for a put: exact if a timer begins at it. Needs no lock. */
static inline int64_t shmq_time_of_put(const struct shmq_queue *q, const struct shmq_put *put)
{
    if (put->delay || shmq_ttl_of(q, put) > 0 || put->dedupe)
        return shmq_now();
    return shmq_time(q);
}

/* Prefetches what the put of a group reads first. Needs no lock. */
static inline void shmq_fetch_bucket(const struct shmq_queue *q, uint64_t group)
{
    shmq_fetch(&q->group_buckets[shmq_bucket_of(q, group)]);
}

/* Puts one message that shmq_fits: SHMQ_OK, DUPLICATE (`seq` is the first put's then), FULL,
 * NO_SPACE. */
int shmq_put(struct shmq_queue *q, const struct shmq_put *put, int64_t now, uint64_t *seq);

/* The same in three steps, so that the body is written without the lock: reserve a FILLING slot,
 * named by its receipt; then commit it as a message or as staged, or abandon it. */
int shmq_reserve(struct shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes, int64_t now,
                 const uint64_t *dedupe, struct shmq_view *view, uint64_t *seq);
int shmq_fill(struct shmq_queue *q, uint64_t receipt, const struct shmq_put *put, int64_t now,
              uint64_t *seq);
int shmq_stage(struct shmq_queue *q, uint64_t receipt, const struct shmq_put *put, int64_t now);
int shmq_abandon(struct shmq_queue *q, uint64_t receipt);

/* Stages a row in one step, copying its bytes under the lock: SHMQ_OK, FULL, NO_SPACE. `ids` is the
 * number of staged rows with a dedupe id that are not committed yet. */
int shmq_stage_row(struct shmq_queue *q, const struct shmq_put *put, uint32_t ids, int64_t now,
                   uint64_t *receipt);

/* The bytes that a row takes besides body and properties until its commit: none, or
 * SHMQ_DEFERRED_PUT_BYTES if it has a delay or a dedupe id. */
#define SHMQ_DEFERRED_PUT_BYTES 32u

uint32_t shmq_deferred_put_bytes(const struct shmq_queue *q, const struct shmq_put *put);

/* Makes a staged message visible: SHMQ_OK, STALE. For a row also SHMQ_DUPLICATE: its dedupe id is
 * known, and it was removed; and FULL, NO_SPACE: it stays staged until there is room for its id. */
int shmq_commit_staged(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Leases the next message; `handed`: it is handed to the application now. SHMQ_EMPTY. */
int shmq_lease(struct shmq_queue *q, int64_t now, bool handed, struct shmq_view *view);

/* Leases message `seq` for `ns`, handed out, if it is READY in slot `at`, whatever is before it.
 * SHMQ_STALE, also if another message of its group is in flight. A message that is in no index yet
 * is not found: call shmq_lock or shmq_inbox_take before. */
int shmq_lease_at(struct shmq_queue *q, uint32_t at, uint64_t seq, int64_t now, int64_t ns,
                  struct shmq_view *view);

/* Leases a message that is in the order. */
void shmq_lease_this(struct shmq_queue *q, struct shmq_slot *s, int64_t now, bool handed,
                     struct shmq_view *view);

/* Without the lock: marks the leased message as handed to the application. SHMQ_STALE. */
int shmq_hand(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Without the lock: whether the receipt is still valid and its lease not over. */
bool shmq_holds(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Without the lock: the sequence number of the message if this handle holds its lease, the lease is
 * not over and the queue is open; else 0. */
uint64_t shmq_held_by_us(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Without the lock: acknowledges a message that was handed out. From here on neither the end of its
 * lease nor a death can bring it back; shmq_finish, or the next process that finds it, frees it.
 * SHMQ_STALE. */
int shmq_mark_acked(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Frees a message that shmq_mark_acked has marked. SHMQ_STALE if it was freed already. */
int shmq_finish(struct shmq_queue *q, uint64_t receipt);

/* Settlements. SHMQ_STALE if the receipt is not valid any more. */
int shmq_ack(struct shmq_queue *q, uint64_t receipt, int64_t now);
/* `delay` in ns; -1: the queue's back-off. */
int shmq_nack(struct shmq_queue *q, uint64_t receipt, int64_t delay, int64_t now);
int shmq_reject(struct shmq_queue *q, uint64_t receipt, int64_t now);
int shmq_extend(struct shmq_queue *q, uint64_t receipt, int64_t ns, int64_t now);
/* Returns it at once; counts no delivery if it was not handed out. */
int shmq_return(struct shmq_queue *q, uint64_t receipt, int64_t now);
/* Returns it after `delay`, and counts no delivery, even if it was handed out. */
int shmq_return_unseen(struct shmq_queue *q, uint64_t receipt, int64_t delay, int64_t now);

/* The message keeps `error`, one msgpack value, as its property "error", as far as the queue's
 * error_bytes (last_error.h) and its arena (amend.h) have room, and it is counted by its type
 * (failures.h). Before shmq_nack or shmq_reject, without releasing the locks: the lease is closed then.
 * SHMQ_STALE; damage is the settlement's to report. Holds both locks. */
int shmq_keep_error(struct shmq_queue *q, uint64_t receipt, struct shmq_text error, int64_t now);

/* A time of the message has come: the end of its lease, delay or ttl. For the timer. */
void shmq_message_due(struct shmq_queue *q, struct shmq_slot *s, int64_t now);

/* Reclaims a slot that a dead process held: see segment.h. */
void shmq_message_orphaned(struct shmq_queue *q, struct shmq_slot *s, int64_t now);

/* Removes READY and DELAYED messages; counts them in `removed`, and gives memory back. */
int shmq_purge(struct shmq_queue *q, uint64_t *removed);

/* Pins the bytes of a leased message. SHMQ_STALE; SHMQ_BUSY if another process has pinned them:
 * then `view` is valid only while the lock is held. shmq_pin_at does this for any slot that
 * still holds message `seq`. */
int shmq_pin(struct shmq_queue *q, uint64_t receipt, int64_t now, struct shmq_view *view);
int shmq_pin_at(struct shmq_queue *q, uint32_t at, uint64_t seq, struct shmq_view *view);
void shmq_unpin(struct shmq_queue *q, uint32_t at);

/* Describes a slot. */
void shmq_look(struct shmq_queue *q, struct shmq_slot *s, struct shmq_view *view);

/* Copies the leased messages after sequence number `after` that are in slots `from` to `end` - 1;
 * returns how many they are. `held` has room for as many as there are slots. */
uint32_t shmq_leases_in(struct shmq_queue *q, uint32_t from, uint32_t end, uint64_t after,
                        struct shmq_leased_view *held);
