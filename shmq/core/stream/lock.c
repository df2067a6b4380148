#define _GNU_SOURCE
#include "base/mutex.h"
#include "stream/log.h"

/* What a dead holder had not published does not exist, so the entries are right, and everything
 * derived from them is derived again. If we die before that is done, the next holder does the same,
 * because it inherits the lock from us. */
static void mend(struct shmq_log *log)
{
    struct shmq_log_header *h = log->h;

    SET(h->recoveries, h->recoveries + 1);
    shmq_log_trim_index(log);
    shmq_log_find_loan(log);
    if (shmq_log_recover(log))
        SET_RELAXED(h->state, SHMQ_BROKEN);
}

int shmq_log_lock(struct shmq_log *log, int64_t ns)
{
    struct shmq_log_header *h = log->h;
    int status = shmq_mutex_take(&h->lock, log->self, ns);
    uint32_t state = GET_RELAXED(h->state);

    if (status == SHMQ_UNREGISTERED && state == SHMQ_GONE)
        return SHMQ_DELETED; /* a process leaves its namespace with the last stream */
    if (__builtin_expect(status == SHMQ_INHERITED, 0))
        mend(log);
    else if (status)
        return status;
    state = GET_RELAXED(h->state);
    if (__builtin_expect(state != SHMQ_OPEN || h->backed[0] > log->half || h->backed[1] > log->half,
                         0)) {
        shmq_log_unlock(log);
        return state == SHMQ_GONE ? SHMQ_DELETED : SHMQ_DAMAGED;
    }
    if (__builtin_expect(GET_ACQUIRE(*log->wanted) != GET_RELAXED(h->applied), 0))
        shmq_log_apply(log);
    return SHMQ_OK;
}

void shmq_log_unlock(struct shmq_log *log) { shmq_mutex_drop(&log->h->lock); }

uint64_t shmq_log_holder(const struct shmq_log *log) { return shmq_mutex_holder(&log->h->lock); }

/* Takes in entries whose appender died right after it had published them. */
static void take_over(struct shmq_log *log, uint64_t begin, const struct shmq_peeked_entry *g)
{
    struct shmq_log_header *h = log->h;
    struct shmq_entry e;
    uint64_t next;

    shmq_log_index(log, h->last_begin, begin, g->offset, g->seen);
    if (shmq_entry_read(shmq_log_byte(log, begin), g->size, log->salt, false, &e, &next) ==
            SHMQ_E_OK &&
        e.flags & SHMQ_E_PRODUCED && !shmq_log_back_producers(log))
        shmq_log_remember(log, e.producer, e.sequence, e.offset, e.count);
    SET(h->last_begin, begin);
    if (g->seen > h->last_seen)
        SET_ATOMIC(h->last_seen, g->seen);
    SET_RELEASE(h->next, g->offset + g->count);
}

int shmq_log_recover(struct shmq_log *log)
{
    struct shmq_log_header *h = log->h;
    uint64_t committed = shmq_log_committed(log), at = h->settled;
    struct shmq_peeked_entry g;

    if (at > committed || committed - shmq_log_oldest(log) > shmq_log_ring_bytes(log))
        return SHMQ_DAMAGED;
    while (at < committed) {
        struct shmq_log_spot spot = shmq_log_spot(log, at);
        uint64_t behind = at;

        if (!shmq_log_look(log, &spot, committed, &g))
            return SHMQ_DAMAGED;
        at = spot.position;
        if (shmq_log_is_wrap(log, &spot)) {
            SET(h->last_pad, (uint32_t)((at - behind) / 8));
            SET(h->last_wrap, at);
        }
        take_over(log, at, &g);
        at += g.size;
    }
    SET_RELEASE(h->settled, committed);
    return SHMQ_OK;
}
