#define _GNU_SOURCE
#include "queue/segment.h"

#include <errno.h>
#include <fcntl.h>

#include "queue/change_hints.h"

#define LEAST_SLOTS 32u          /* the first step: a page of slots                     */
#define MOST_SLOTS 1024u         /* the largest step                                    */
#define LEAST_UNITS (4u * SHMQ_PAGE / SHMQ_UNIT)
#define MOST_UNITS ((1u << 18) / SHMQ_UNIT)
#define MAPPED_AROUND (1u << 16) /* bytes that Linux maps at a load                     */

int shmq_back(struct shmq_queue *q, uint64_t offset, uint64_t size)
{
    uint64_t from = offset / SHMQ_PAGE * SHMQ_PAGE;
    int error;

    do
        error = posix_fallocate(q->fd, (off_t)from, (off_t)(shmq_page_up(offset + size) - from));
    while (error == EINTR);
    shmq_mark();
    if (!error)
        return SHMQ_OK;
    q->refused_bytes = shmq_page_up(offset + size) - from;
    return SHMQ_NO_SPACE;
}

/* The next high-water mark: double, within a least and a largest step. */
static uint32_t step(uint32_t have, uint32_t need, uint32_t least, uint32_t most, uint32_t limit)
{
    uint32_t by = have < least ? least : have > most ? most : have;
    uint64_t next = (uint64_t)have + by;

    if (next < need)
        next = need;
    return next > limit ? limit : (uint32_t)next;
}

/* Ensures: entries [from, to) of an array of `size`-byte entries at `base` are backed. */
static int back_entries(struct shmq_queue *q, uint64_t base, uint32_t from, uint32_t to,
                        uint32_t size)
{
    return shmq_back(q, base + (uint64_t)from * size, (uint64_t)(to - from) * size);
}

/* Clears and maps pages that have just been allocated, many at a time: a page's first store would do
 * so for that page alone. It is a hint, and nothing depends on it: tmpfs clears what was allocated
 * before when it is asked to allocate it again, and a load maps all clear pages around its own. */
static void prepare(const struct shmq_queue *q, uint64_t base, uint32_t from, uint32_t to,
                    uint32_t size)
{
    uint64_t at = base + (uint64_t)from * size, end = base + (uint64_t)to * size;

    if (end - at < MAPPED_AROUND)
        return;
    (void)posix_fallocate(q->fd, (off_t)at, (off_t)(end - at));
    for (; at < end; at += MAPPED_AROUND)
        (void)*(volatile char *)(q->base + at);
}

/* The rings grow with the slots. Their entries are at other places then, so the writer must look at
 * every slot; it knows that before it can look at a wrong place. */
static int grow_rings(struct shmq_queue *q, uint32_t slots)
{
    uint32_t size = SHMQ_LEAST_HINTS;
    int status;

    while (size < slots && size < q->geo.hints_max)
        size *= 2;
    if (size <= q->h->hints)
        return SHMQ_OK;
    if ((status = shmq_back(q, q->geo.fresh, (uint64_t)size * sizeof(uint32_t))) ||
        (status = shmq_back(q, q->geo.spent, (uint64_t)size * sizeof(uint32_t))))
        return status;
    shmq_lose_hints(q);
    __atomic_store_n(&q->h->hints, size, __ATOMIC_RELEASE);
    shmq_mark();
    return SHMQ_OK;
}

/* Ensures: the rings of hints, and `logged` of `slots` slots, have memory. */
static int back_journal(struct shmq_queue *q, uint32_t from, uint32_t slots)
{
    int status;

    if (!q->journaled)
        return SHMQ_OK;
    if ((status = grow_rings(q, slots)))
        return status;
    return shmq_back(q, q->geo.logged + (uint64_t)from * sizeof(struct shmq_logged),
                     (uint64_t)(slots - from) * sizeof(struct shmq_logged));
}

static int back_slot_range(struct shmq_queue *q, uint32_t from, uint32_t to)
{
    const struct shmq_geometry *g = &q->geo;
    int status;

    if ((status = back_entries(q, g->slots, from, to, sizeof(struct shmq_slot))) ||
        (status = back_entries(q, g->timer_keys, from, to, sizeof(uint64_t))) ||
        (status = back_entries(q, g->timer_slots, from, to, sizeof(uint32_t))) ||
        (status = back_entries(q, g->order_keys, from, to, sizeof(uint64_t))) ||
        (status = back_entries(q, g->order_slots, from, to, sizeof(uint32_t))) ||
        (status = back_journal(q, from, to)))
        return status;
    prepare(q, g->slots, from, to, sizeof(struct shmq_slot));
    SET(q->h->slots_backed, to);
    return SHMQ_OK;
}

int shmq_back_slots(struct shmq_queue *q, uint32_t count)
{
    uint32_t have = q->h->slots_backed;
    uint32_t to = step(have, count, LEAST_SLOTS, MOST_SLOTS, shmq_capacity(q));
    int status;

    if (have >= count)
        return SHMQ_OK;
    status = back_slot_range(q, have, to);
    if (status == SHMQ_NO_SPACE && to > count)
        status = back_slot_range(q, have, count);
    return status;
}

static int back_unit_range(struct shmq_queue *q, uint32_t from, uint32_t to)
{
    uint64_t first = q->geo.bitmap + from / 64 * 8, last = q->geo.bitmap + (to + 63) / 64 * 8;
    int status;

    if ((status = shmq_back(q, first, last - first)) ||
        (status = back_entries(q, q->geo.arena, from, to, SHMQ_UNIT)))
        return status;
    prepare(q, q->geo.arena, from, to, SHMQ_UNIT);
    SET(q->h->units_backed, to);
    return SHMQ_OK;
}

int shmq_back_units(struct shmq_queue *q, uint32_t count)
{
    uint32_t have = q->h->units_backed;
    uint32_t to = step(have, count, LEAST_UNITS, MOST_UNITS, shmq_units(q));
    int status;

    if (have >= count)
        return SHMQ_OK;
    status = back_unit_range(q, have, to);
    if (status == SHMQ_NO_SPACE && to > count)
        status = back_unit_range(q, have, count);
    return status;
}

int shmq_back_buckets(struct shmq_queue *q, uint32_t count)
{
    uint32_t have = q->h->group_buckets;
    int status = shmq_back(q, q->geo.group_buckets, (uint64_t)count * sizeof(uint32_t));

    if (status)
        return status;
    for (uint32_t i = have; i < count; i++)
        q->group_buckets[i] = SHMQ_NIL;
    SET(q->h->group_buckets, count);
    return SHMQ_OK;
}

int shmq_back_groups(struct shmq_queue *q, uint32_t count)
{
    uint32_t have = q->h->groups_backed;
    uint32_t to = step(have, count, LEAST_SLOTS * 4, MOST_SLOTS * 4, shmq_capacity(q));
    int status;

    if (!q->h->group_buckets && (status = shmq_back_buckets(q, shmq_power_up(shmq_capacity(q)))))
        return status;
    if (have >= count)
        return SHMQ_OK;
    status = back_entries(q, q->geo.groups, have, to, sizeof(struct shmq_group));
    if (!status)
        SET(q->h->groups_backed, to);
    return status;
}

int shmq_back_attachments(struct shmq_queue *q, uint32_t count)
{
    uint32_t per_page = SHMQ_PAGE / sizeof(struct shmq_attachment);
    uint32_t have = q->h->attachments_backed;
    uint32_t to = (count + per_page - 1) / per_page * per_page;
    int status;

    if (have >= count)
        return SHMQ_OK;
    status = back_entries(q, q->geo.attachments, have, to, sizeof(struct shmq_attachment));
    if (!status)
        SET(q->h->attachments_backed, to);
    return status;
}

int shmq_back_amended(struct shmq_queue *q, uint32_t count)
{
    uint32_t have = q->h->amended_backed;
    uint32_t to = step(have, count, LEAST_SLOTS * 8, MOST_SLOTS * 8, shmq_capacity(q));
    int status;

    if (have >= count)
        return SHMQ_OK;
    status = back_entries(q, q->geo.amended, have, to, sizeof(struct shmq_amended));
    if (!status)
        SET(q->h->amended_backed, to);
    return status;
}

/* Ensures: whole pages within entries [from, to) have no memory. */
static void punch(struct shmq_queue *q, uint64_t base, uint32_t from, uint32_t to, uint32_t size)
{
    uint64_t first = shmq_page_up(base + (uint64_t)from * size),
             last = shmq_page_up(base + (uint64_t)to * size);

    if (first < last)
        (void)fallocate(q->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first,
                        (off_t)(last - first));
    shmq_mark();
}

/* Lowers the mark first: a death in between wastes memory until the next step. */
static void give_back_slots(struct shmq_queue *q)
{
    uint32_t keep = q->h->slots_made, had = q->h->slots_backed;

    SET(q->h->slots_backed, keep);
    punch(q, q->geo.slots, keep, had, sizeof(struct shmq_slot));
    punch(q, q->geo.timer_keys, keep, had, sizeof(uint64_t));
    punch(q, q->geo.timer_slots, keep, had, sizeof(uint32_t));
    punch(q, q->geo.order_keys, keep, had, sizeof(uint64_t));
    punch(q, q->geo.order_slots, keep, had, sizeof(uint32_t));
    if (q->journaled)
        punch(q, q->geo.logged, keep, had, sizeof(struct shmq_logged));
}

void shmq_give_back(struct shmq_queue *q, uint32_t units)
{
    uint32_t had = q->h->units_backed;

    give_back_slots(q);
    if (units > had)
        return;
    SET(q->h->units_backed, units);
    SET(q->h->units_hint, q->h->units_hint < units ? q->h->units_hint : units);
    punch(q, q->geo.arena, units, had, SHMQ_UNIT);
    if (!q->h->groups) {
        had = q->h->groups_backed;
        SET(q->h->group_free, SHMQ_NIL);
        SET(q->h->groups_made, 0);
        SET(q->h->groups_backed, 0);
        punch(q, q->geo.groups, 0, had, sizeof(struct shmq_group));
    }
}
