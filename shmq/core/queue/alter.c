#include "queue/alter.h"

#include "queue/index.h"
#include "queue/recover.h"
#include "queue/segment.h"
#include "queue/slot.h"

/* The sizes are two numbers of the policies. The segment was laid out for the greatest ones, and every
 * process has all of it mapped, so a queue grows by the store that applies its new policies: no message
 * moves, and no process has to notice. */

/* Ensures: no slot and no unit at or above the sizes is in use or has memory, so that a queue of them
 * is as if it had never been larger. Linear, as a purge. */
static int clear_above(struct shmq_queue *q, uint32_t capacity, uint32_t units)
{
    struct shmq_header *h = q->h;
    uint32_t top;
    int status;

    if (h->slots_backed <= capacity && h->units_backed <= units)
        return SHMQ_OK;
    if (h->live > capacity || h->units_used - h->units_cached > units)
        return SHMQ_FULL;
    if ((status = shmq_rebuild(q)))
        return status;
    top = shmq_arena_top(q);
    if (h->slots_made > capacity || top > units)
        return SHMQ_FULL;
    shmq_give_back(q, top);
    return SHMQ_OK;
}

int shmq_alter(struct shmq_queue *q, const struct shmq_policies *policies, uint32_t alterations)
{
    struct shmq_header *h = q->h;
    struct shmq_policies *next = &h->options.policies[(alterations + 1) & 1];
    uint64_t units = shmq_units_of(policies->arena_bytes);
    bool larger = policies->capacity > shmq_capacity(q) || units > shmq_units(q);
    int status;

    if (alterations != h->alterations)
        return SHMQ_STALE;
    if (policies->capacity > q->geo.slots_max || units > q->geo.units)
        return SHMQ_TOO_LARGE;
    if ((status = clear_above(q, policies->capacity, (uint32_t)units)) ||
        (status = shmq_group_spread(q, policies->capacity)))
        return shmq_outcome(q, status);
    SET(*next, *policies);
    SET(next->crc, shmq_policies_checksum(next));
    SET_RELEASE(h->alterations, alterations + 1);
    if (larger)
        q->freed = SHMQ_MAX_CAPACITY; /* every put that waits for room may look */
    return SHMQ_OK;
}

static uint64_t doubled(uint64_t size, uint64_t most) { return size < most / 2 ? size * 2 : most; }

int shmq_enlarge(struct shmq_queue *q)
{
    struct shmq_policies policies = *shmq_policies_now(q->h);
    bool slots = q->h->live >= policies.capacity;
    uint64_t most = (uint64_t)q->geo.units * SHMQ_UNIT;

    if (slots ? policies.capacity >= q->geo.slots_max : policies.arena_bytes >= most)
        return SHMQ_FULL;
    if (slots)
        policies.capacity = (uint32_t)doubled(policies.capacity, q->geo.slots_max);
    else
        policies.arena_bytes = doubled(policies.arena_bytes, most);
    return shmq_alter(q, &policies, q->h->alterations);
}
