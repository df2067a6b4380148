#include "queue/amend.h"

#include "queue/segment.h"
#include "queue/slot.h"

/* Its units; 0 and damage if they are not in the arena. */
static uint32_t units_of(struct shmq_queue *q, const struct shmq_amended *amended)
{
    uint32_t units = shmq_units_for(q, shmq_amended_text(q, amended).bytes);

    if (!units)
        q->damaged = true;
    return units;
}

int shmq_amend(struct shmq_queue *q, struct shmq_slot *s, struct shmq_text put,
               struct shmq_text error)
{
    uint32_t at = shmq_index_of(q, s), most = shmq_units(q) / SHMQ_AMENDED_PART;
    uint32_t bytes, units, block;
    struct shmq_amended *entry;
    int status;

    if (at == SHMQ_NIL || (put.bytes && !put.at))
        return SHMQ_DAMAGED;
    bytes = shmq_properties_with_error(put.at, put.bytes, error, NULL);
    units = shmq_units_for(q, bytes);
    shmq_drop_amended(q, s);
    if (!bytes || units > most || q->h->amended_units > most - units)
        return SHMQ_TOO_LARGE;
    if ((status = shmq_back_amended(q, at + 1)) ||
        (status = shmq_arena_take(q, units, &block, true)))
        return status;
    (void)shmq_properties_with_error(put.at, put.bytes, error,
                                     q->arena + (uint64_t)block * SHMQ_UNIT);
    shmq_mark();
    entry = &q->amended[at];
    SET_ATOMIC(entry->block, block);
    SET_ATOMIC(entry->bytes, bytes);
    SET_RELEASE(entry->seq, s->seq);
    SET(q->h->amended_units, q->h->amended_units + units);
    SET_RELAXED(q->h->amended, q->h->amended + 1);
    return SHMQ_OK;
}

void shmq_drop_amended(struct shmq_queue *q, struct shmq_slot *s)
{
    struct shmq_amended *entry = shmq_amended_of(q, s);
    uint32_t units;

    if (!entry)
        return;
    SET_RELEASE(entry->seq, 0);
    if (!(units = units_of(q, entry)))
        return;
    SET(q->h->amended_units, q->h->amended_units - units);
    SET_RELAXED(q->h->amended, q->h->amended - 1);
    shmq_arena_give(q, entry->block, units);
}

void shmq_rebuild_amended(struct shmq_queue *q, uint32_t at, bool live)
{
    struct shmq_amended *entry = &q->amended[at];
    uint32_t units;

    if (at >= q->h->amended_backed || !entry->seq)
        return;
    if (!live || entry->seq != q->slots[at].seq) {
        SET_RELEASE(entry->seq, 0);
        return;
    }
    units = units_of(q, entry);
    if (!units || !shmq_arena_claim(q, entry->block, units)) {
        q->damaged = true;
        return;
    }
    SET(q->h->amended_units, q->h->amended_units + units);
    SET_RELAXED(q->h->amended, q->h->amended + 1);
}
