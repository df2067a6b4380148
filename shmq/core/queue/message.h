/* The life of a message: the operations of the queue. All hold the lock, unless said.
 *
 *   put ──► READY ──lease──► LEASED ──ack──► (ACKED) ──► FREE
 *    │        ▲  ▲              │
 *    └► DELAYED  └──nack, expiry, death of the holder
 *                               └──limit, reject, ttl──► DEAD ──moved──► the other queue
 */
#ifndef SHMQ_QUEUE_MESSAGE_H
#define SHMQ_QUEUE_MESSAGE_H

#include "queue/queue.h"

/* What a put brings. Times in ns. */
struct shmq_put {
    const void *body;
    const void *meta;
    const void *tail;        /* the body's end, if it does not stand behind the rest    */
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
    uint32_t row;            /* of a chunk's: its number there + 1; 0: it is no row     */
};

/* What a lease, or a look at a slot, gives. */
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
    uint32_t deliveries;     /* this one included                                   */
    uint8_t priority;
    uint8_t codec;
    uint8_t reason;
    int64_t put_at;
    int64_t deadline;
    int64_t expires;
    int64_t dead_at;
};

/* SHMQ_TOO_LARGE if no queue with these options can ever hold it. Needs no lock. */
int shmq_fits(const struct shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes);

/* Puts one message that shmq_fits: SHMQ_OK, DUPLICATE (then `seq` is the first one's), FULL,
 * NO_SPACE. */
int shmq_put(struct shmq_queue *q, const struct shmq_put *put, int64_t now, uint64_t *seq);

/* The same in three steps, so that the body is written without the lock: a slot of ours
 * that is FILLING, named by its receipt; its commit, as a message or as staged; or its
 * end. */
int shmq_reserve(struct shmq_queue *q, uint64_t body_bytes, uint32_t meta_bytes, int64_t now,
                 const uint64_t *dedupe, struct shmq_view *view, uint64_t *seq);
int shmq_fill(struct shmq_queue *q, uint64_t receipt, const struct shmq_put *put, int64_t now,
              uint64_t *seq);
int shmq_stage(struct shmq_queue *q, uint64_t receipt, const struct shmq_put *put, int64_t now);
int shmq_abandon(struct shmq_queue *q, uint64_t receipt);

/* Stages a row in one step, its bytes copied under the lock: SHMQ_OK, FULL, NO_SPACE. `ids`:
 * of how many rows with a dedupe id that are staged the commit is still to come. */
int shmq_stage_row(struct shmq_queue *q, const struct shmq_put *put, uint32_t ids, int64_t now,
                   uint64_t *receipt);

/* The bytes that a row takes beside body and properties until it is committed: none, or
 * SHMQ_DEFERRED_PUT_BYTES if it has a delay or a dedupe id. */
#define SHMQ_DEFERRED_PUT_BYTES 32u

uint32_t shmq_deferred_put_bytes(const struct shmq_queue *q, const struct shmq_put *put);

/* Makes a staged message a message: SHMQ_OK, STALE. Of a row, SHMQ_DUPLICATE, too: then it is
 * gone, as its dedupe id is known; and FULL, NO_SPACE: it stays staged until there is room for
 * its id. */
int shmq_commit_staged(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Leases the next message; `handed`: the application sees it now. SHMQ_EMPTY. */
int shmq_lease(struct shmq_queue *q, int64_t now, bool handed, struct shmq_view *view);

/* The same, for `ns` from `now` on. */
int shmq_lease_for(struct shmq_queue *q, int64_t now, int64_t ns, bool handed,
                   struct shmq_view *view);

/* Leases message `seq`, if it stands READY in slot `at`, whatever is in front of it: handed out,
 * for `ns`. SHMQ_STALE, also if another message of its group is in flight. What is in no index
 * yet is not found: shmq_lock, and shmq_inbox_take, see to that. */
int shmq_lease_at(struct shmq_queue *q, uint32_t at, uint64_t seq, int64_t now, int64_t ns,
                  struct shmq_view *view);

/* Leases a message that stands in the order. */
void shmq_lease_this(struct shmq_queue *q, struct shmq_slot *s, int64_t now, bool handed,
                     struct shmq_view *view);

/* Without the lock: the application sees this leased message now. SHMQ_STALE. */
int shmq_hand(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Without the lock: whether the receipt is (still) good, and its lease not over. */
bool shmq_holds(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Without the lock: the sequence number of the message if its lease is this handle's and not
 * over, and the queue is open; else 0. */
uint64_t shmq_held_by_us(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Without the lock: acknowledges a message that was handed out. From here on nothing
 * brings it back, neither the end of its lease nor a death; shmq_finish, or the next process that
 * finds it, sets it free. SHMQ_STALE. */
int shmq_mark_acked(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Sets a message of shmq_mark_acked free. SHMQ_STALE if that has been done. */
int shmq_finish(struct shmq_queue *q, uint64_t receipt);

/* Settlements. SHMQ_STALE if the receipt is not good any more. */
int shmq_ack(struct shmq_queue *q, uint64_t receipt, int64_t now);
/* `delay` in ns; -1: the queue's back-off. */
int shmq_nack(struct shmq_queue *q, uint64_t receipt, int64_t delay, int64_t now);
int shmq_reject(struct shmq_queue *q, uint64_t receipt, int64_t now);
int shmq_extend(struct shmq_queue *q, uint64_t receipt, int64_t ns, int64_t now);
/* Returns it at once; what was not handed out does not count as a delivery. */
int shmq_return(struct shmq_queue *q, uint64_t receipt, int64_t now);
/* The same of one that was handed out, and yet nobody has seen: it does not count. */
int shmq_return_unseen(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* Its time has come: a lease or a delay has ended, or a ttl. For the timer. */
void shmq_message_due(struct shmq_queue *q, struct shmq_slot *s, int64_t now);

/* Takes what a dead process held: see attachments.h. */
void shmq_message_orphaned(struct shmq_queue *q, struct shmq_slot *s, int64_t now);

/* Removes READY and DELAYED messages; returns how many, and gives memory back. */
int shmq_purge(struct shmq_queue *q, uint64_t *removed);

/* Pins the bytes of a leased message. SHMQ_STALE; SHMQ_BUSY if another process has pinned them:
 * then `view` is good for as long as the lock is held. shmq_pin_at: of any slot that is still
 * message `seq`. */
int shmq_pin(struct shmq_queue *q, uint64_t receipt, int64_t now, struct shmq_view *view);
int shmq_pin_at(struct shmq_queue *q, uint32_t at, uint64_t seq, struct shmq_view *view);
void shmq_unpin(struct shmq_queue *q, uint32_t at);

/* Describes a slot. */
void shmq_look(struct shmq_queue *q, struct shmq_slot *s, struct shmq_view *view);

#endif
