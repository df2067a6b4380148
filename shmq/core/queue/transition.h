/* The transitions of a message's life, from which the operations are made: see the diagram in
 * message.h. All hold the lock. */
#pragma once

#include "queue/index.h"
#include "queue/message.h"

/* Does what is due, at most some thousand things in one call. */
void shmq_tick(struct shmq_queue *q, int64_t now);

/* Whether the caller is to check which attached processes are alive: no process has claimed to do so
 * for 50 ms, for each 64 of them, and `patience` ns. A negative patience shortens that: to nothing
 * with -50 ms, unless there are 64. Needs no lock. */
bool shmq_claim_look(struct shmq_queue *q, int64_t now, int64_t patience);

static inline void shmq_tick_if_due(struct shmq_queue *q, int64_t now)
{
    if (__builtin_expect(now >= q->h->next_tick, 0))
        shmq_tick(q, now);
}

/* Whether the message of a slot with this word has lived for its whole ttl. */
static inline bool shmq_has_expired(const struct shmq_slot *s, uint64_t word, int64_t now)
{
    return word & SHMQ_F_TTL && s->expires <= now;
}

/* The slot that a receipt names, if it is in that state under that serial. */
static inline struct shmq_slot *shmq_slot_in(struct shmq_queue *q, uint64_t receipt,
                                             enum shmq_state state)
{
    struct shmq_slot *s = shmq_slot_named(q, receipt);
    uint64_t word = s ? shmq_word(s) : 0;

    if (!s || shmq_state_of(word) != state || shmq_serial_of(word) != receipt >> SHMQ_SERIAL_SHIFT)
        return NULL;
    return s;
}

/* Whether the slot's owner has left it: see shmq_disown. That of a copy is told from its owner alone. */
static inline bool shmq_is_disowned(const struct shmq_slot *s)
{
    enum shmq_state state = shmq_state_of(shmq_word(s));

    return (state == SHMQ_FILLING || state == SHMQ_MOVING) && !GET_ATOMIC(s->owner);
}

/* The message that is served first, or SHMQ_NIL: in the order, and not expired. */
uint32_t shmq_next_ready(struct shmq_queue *q, int64_t now);

/* Leases a READY message for a run, handed out. If it has a group, that has nothing in flight but
 * messages of this run. */
void shmq_grant(struct shmq_queue *q, struct shmq_slot *s, bool by_name, int64_t now, int64_t ns,
                struct shmq_view *view);

/* Counts one lease more (1) or less (-1), for the queue and for its holder. */
void shmq_count_lease(struct shmq_queue *q, const struct shmq_slot *s, int by);

/* Commits READY and puts the slot where gets find it. */
void shmq_make_ready(struct shmq_queue *q, struct shmq_slot *s, uint64_t word);

/* Commits DELAYED until `deadline`. */
void shmq_make_delayed(struct shmq_queue *q, struct shmq_slot *s, uint64_t word, int64_t until);

/* Ensures: the READY or DELAYED slot is in no list, heap or timer; it stays in its group. */
void shmq_withdraw(struct shmq_queue *q, struct shmq_slot *s);

/* Ends a message that is in no list: it goes to the dead letters, or is dropped. */
void shmq_die(struct shmq_queue *q, struct shmq_slot *s, enum shmq_reason reason,
              uint32_t deliveries);

/* Counts a message that was dropped: by overflow, if it is ALIVE. */
static inline void shmq_count_drop(struct shmq_header *h, enum shmq_reason reason)
{
    SET(h->dropped, h->dropped + 1);
    SET(h->dropped_by[reason], h->dropped_by[reason] + 1);
}

/* Commits DEAD, and adds the slot to those that wait to be moved. */
void shmq_make_dead(struct shmq_queue *q, struct shmq_slot *s, uint32_t deliveries);

/* Returns a leased message that has no timer any more. A delivery that was handed out counts; if it
 * was the last one allowed, the message dies. */
void shmq_come_back(struct shmq_queue *q, struct shmq_slot *s, int64_t delay, int64_t now);

/* Ends the lease: no timer runs, and no attachment counts it. */
void shmq_unlease(struct shmq_queue *q, struct shmq_slot *s);

/* Closes the lease to shmq_hand and shmq_mark_acked, which take no lock: from now on the word does
 * not change. False if the message was acknowledged; it is free then. */
bool shmq_close_lease(struct shmq_queue *q, struct shmq_slot *s);

/* Frees an acknowledged message. */
void shmq_set_free(struct shmq_queue *q, struct shmq_slot *s);

/* The leased slot of a valid receipt, or NULL; a lease that has run out ends here. A receipt is not
 * valid either if a named holder's newer claim has made it void. */
struct shmq_slot *shmq_leased(struct shmq_queue *q, uint64_t receipt, int64_t now);

/* The lease has run out. */
void shmq_end_lease(struct shmq_queue *q, struct shmq_slot *s, int64_t now);

static inline void shmq_leave_group(struct shmq_queue *q, struct shmq_slot *s)
{
    if (shmq_word(s) & SHMQ_F_GROUPED)
        shmq_group_leave(q, s);
}

/* The deliveries of a leased message that comes back: this one counts if it was handed out. */
static inline uint32_t shmq_deliveries_with_this(uint64_t word)
{
    uint32_t deliveries = shmq_deliveries_of(word);

    return word & SHMQ_F_HANDED && deliveries < SHMQ_DELIVERIES_MAX ? deliveries + 1 : deliveries;
}
