#include "file/restore.h"

#include <string.h>

#include "queue/alter.h"
#include "queue/index.h"
#include "queue/slot.h"
#include "queue/transition.h"

#define FOREVER (INT64_MAX / 2)

/* A wall time as a monotonic one, for any value in a file. */
static int64_t monotonic(const struct shmq_restorer *r, int64_t wall)
{
    int64_t since;

    if (__builtin_sub_overflow(wall, r->wall, &since) || since > FOREVER)
        return FOREVER;
    return since < -FOREVER ? -FOREVER : r->now + since;
}

/* Everything from the put except its bytes; the slot is in its group. */
static int fill_slot(struct shmq_restorer *r, struct shmq_slot *s, const struct shmq_record *record)
{
    s->body_bytes = record->body_bytes;
    s->meta_bytes = record->meta_bytes;
    s->lane = record->priority & 0xF;
    s->codec = record->codec;
    s->put_at = monotonic(r, record->put_at);
    s->seq = record->seq;
    s->owner = 0;
    s->reason = SHMQ_ALIVE;
    s->origin_queue = record->flags & SHMQ_R_ORIGIN ? record->origin_queue : 0;
    s->origin_seq = s->origin_queue ? record->origin_seq : 0;
    if (record->flags & SHMQ_R_TTL)
        s->expires = monotonic(r, record->expires);
    if (!(record->flags & SHMQ_R_GROUPED) || record->flags & SHMQ_R_DEAD)
        return SHMQ_OK;
    s->group = record->group;
    return shmq_group_join(r->q, s);
}

static void write_bytes(struct shmq_queue *q, struct shmq_slot *s, const struct shmq_record *record)
{
    unsigned char *body = shmq_body_of(q, s), *meta = shmq_put_meta_of(q, s);

    if (body && record->body_bytes)
        memcpy(body, record->body, record->body_bytes);
    if (meta && record->meta_bytes)
        memcpy(meta, record->meta, record->meta_bytes);
}

/* Messages of a group are all put behind; at the end each group gets its front. */
static void make_ready(struct shmq_queue *q, struct shmq_slot *s, uint64_t flags,
                       uint32_t deliveries)
{
    uint64_t word = shmq_make_word(SHMQ_READY, flags, deliveries, 0);

    if (!(flags & SHMQ_F_GROUPED)) {
        shmq_make_ready(q, s, word);
        return;
    }
    shmq_commit(s, word);
    q->h->visible++;
    if (flags & SHMQ_F_TTL)
        shmq_timer_set(q, s);
    shmq_group_rebuild_behind(q, s);
}

static void commit_put(struct shmq_restorer *r, struct shmq_slot *s,
                       const struct shmq_record *record)
{
    struct shmq_queue *q = r->q;
    uint64_t flags = 0;
    bool holds;

    if (record->flags & SHMQ_R_DEAD) {
        s->reason = record->reason;
        s->dead_at = record->dead_at;
        shmq_make_dead(q, s, record->deliveries);
        q->h->dead++;
        return;
    }
    if (record->flags & SHMQ_R_GROUPED)
        flags |= SHMQ_F_GROUPED;
    if (record->flags & SHMQ_R_TTL)
        flags |= SHMQ_F_TTL;
    if (!(record->flags & SHMQ_R_DELAYED) || record->until <= r->wall) {
        make_ready(q, s, flags, record->deliveries);
        return;
    }
    holds = record->flags & SHMQ_R_HOLDS && flags & SHMQ_F_GROUPED &&
            shmq_group_at(q, s->group_at)->front == SHMQ_NIL;
    if (holds)
        flags |= SHMQ_F_HOLDS;
    shmq_make_delayed(q, s, shmq_make_word(SHMQ_DELAYED, flags, record->deliveries, 0),
                      monotonic(r, record->until));
    if (holds)
        shmq_group_rebuild_flight(q, s);
}

int shmq_restore(struct shmq_restorer *r, const struct shmq_record *record)
{
    struct shmq_queue *q = r->q;
    uint64_t bytes = (uint64_t)record->body_bytes + record->meta_bytes;
    struct shmq_slot *s;
    uint32_t at;
    int status;

    if (shmq_units_of(bytes) > q->geo.units)
        return SHMQ_TOO_LARGE;
    if (record->seq <= q->h->last_seq || (record->priority & 0xF) >= q->h->options.priorities)
        return SHMQ_STALE;
    while ((status = shmq_slot_take(q, bytes, &at)) == SHMQ_FULL)
        if ((status = shmq_enlarge(q)))
            return status;
    if (status)
        return shmq_outcome(q, status);
    s = shmq_slot_at(q, at);
    if ((status = fill_slot(r, s, record))) {
        shmq_slot_untake(q, s);
        return shmq_outcome(q, status);
    }
    write_bytes(q, s, record);
    shmq_slot_born(q);
    q->h->last_seq = record->seq;
    commit_put(r, s, record);
    if (q->journaled && r->logged)
        q->logged[at].seq = record->seq;
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_restore_id(struct shmq_restorer *r, const struct shmq_taken *id)
{
    struct shmq_queue *q = r->q;
    int64_t until = monotonic(r, id->until), window = q->h->options.dedupe_window;
    int status;

    if (!q->geo.dedupe_max || until <= r->now)
        return SHMQ_OK;
    if (until > r->now + window) /* the wall clock was set back */
        until = r->now + window;
    if ((status = shmq_dedupe_reserve(q, r->now)))
        return shmq_outcome(q, status);
    shmq_dedupe_write(q, id->hash, until - window, id->seq);
    shmq_dedupe_accept(q);
    return shmq_outcome(q, SHMQ_OK);
}

void shmq_restore_end(struct shmq_restorer *r, uint64_t last_seq, const uint64_t *totals,
                      uint64_t batch, uint64_t segment, uint64_t offset)
{
    struct shmq_header *h = r->q->h;

    shmq_group_rebuild_done(r->q);
    if (h->last_seq < last_seq)
        h->last_seq = last_seq;
    h->acked = totals[SHMQ_TOTAL_ACKED];
    h->nacked = totals[SHMQ_TOTAL_NACKED];
    h->expired = totals[SHMQ_TOTAL_EXPIRED];
    h->dead_lettered = totals[SHMQ_TOTAL_DEAD_LETTERED];
    h->dropped = totals[SHMQ_TOTAL_DROPPED];
    h->deduped = totals[SHMQ_TOTAL_DEDUPED];
    h->redelivered = totals[SHMQ_TOTAL_REDELIVERED];
    h->fresh_tail = h->last_seq;
    h->next_tick = 0;
    if (!r->logged)
        return;
    h->journal.synced = h->last_seq;
    h->journal.dedupe = h->dedupe_tail;
    h->journal.batch = batch;
    h->journal.segment = segment;
    h->journal.offset = offset;
}
