#include "queue/segment.h"

#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "queue/index.h"

/* The layout of so many slots and bytes. */
static void lay_out(const struct shmq_options *options, uint64_t n, uint64_t arena_bytes,
                    struct shmq_geometry *geo)
{
    uint64_t at = SHMQ_PAGE;

    memset(geo, 0, sizeof *geo); /* so that two can be compared */
    geo->slots_max = (uint32_t)n;
    geo->units = (uint32_t)shmq_units_of(arena_bytes);
    geo->group_buckets_max = shmq_power_up(n);
    geo->dedupe_max = options->dedupe_window ? shmq_most_ids(n) : 0;
    if (options->durability == SHMQ_JOURNAL)
        geo->hints_max = shmq_power_up(n < SHMQ_LEAST_HINTS ? SHMQ_LEAST_HINTS : n);
    geo->attachments = shmq_region(&at, SHMQ_MAX_ATTACHMENTS, sizeof(struct shmq_attachment));
    geo->holders = shmq_region(&at, SHMQ_HOLDERS, sizeof(struct shmq_holder));
    geo->slots = shmq_region(&at, n, sizeof(struct shmq_slot));
    geo->timer_keys = shmq_region(&at, n, sizeof(uint64_t));
    geo->timer_slots = shmq_region(&at, n, sizeof(uint32_t));
    geo->order_keys = shmq_region(&at, n, sizeof(uint64_t));
    geo->order_slots = shmq_region(&at, n, sizeof(uint32_t));
    geo->groups = shmq_region(&at, n, sizeof(struct shmq_group));
    geo->group_buckets = shmq_region(&at, geo->group_buckets_max, sizeof(uint32_t));
    geo->dedupe = shmq_region(&at, geo->dedupe_max, sizeof(struct shmq_dedupe));
    geo->dedupe_buckets = shmq_region(&at, geo->dedupe_max, sizeof(uint32_t));
    geo->logged = shmq_region(&at, geo->hints_max ? n : 0, sizeof(struct shmq_logged));
    geo->fresh = shmq_region(&at, geo->hints_max, sizeof(uint32_t));
    geo->spent = shmq_region(&at, geo->hints_max, sizeof(uint32_t));
    geo->amended = shmq_region(&at, n, sizeof(struct shmq_amended));
    geo->failures = shmq_region(&at, SHMQ_FAILURE_TYPES, sizeof(struct shmq_failure_type));
    geo->bitmap = shmq_region(&at, (geo->units + 63) / 64, sizeof(uint64_t));
    geo->arena = shmq_region(&at, geo->units, SHMQ_UNIT);
    geo->segment_bytes = shmq_page_up(at);
}

/* `size` times SHMQ_GROWTH, up to `most`, and not less than `size`. */
static uint64_t grown(uint64_t size, uint64_t most)
{
    if (size >= most)
        return size;
    return size * SHMQ_GROWTH < most ? size * SHMQ_GROWTH : most;
}

void shmq_lay_out(const struct shmq_options *options, struct shmq_geometry *geo)
{
    lay_out(options, grown(options->capacity, SHMQ_MAX_CAPACITY),
            grown(options->arena_bytes, SHMQ_MAX_GROWN), geo);
}

uint64_t shmq_most_bytes(const struct shmq_options *options, const struct shmq_policies *policies)
{
    struct shmq_geometry geo;

    lay_out(options, policies->capacity, policies->arena_bytes, &geo);
    return geo.segment_bytes;
}

static void know_options(struct shmq_queue *q)
{
    q->middle = (uint8_t)(q->h->options.priorities / 2);
    q->journaled = q->h->options.durability == SHMQ_JOURNAL;
}

void shmq_bind(struct shmq_queue *q, void *base, int fd, const struct shmq_geometry *geo,
               const struct shmq_process *self)
{
    char *at = base;

    memset(q, 0, sizeof *q);
    q->base = at;
    q->fd = fd;
    q->self = self;
    q->geo = *geo;
    q->attachment = SHMQ_NIL;
    q->h = (struct shmq_header *)at;
    q->attachments = (struct shmq_attachment *)(at + geo->attachments);
    q->holders = (struct shmq_holder *)(at + geo->holders);
    q->slots = (struct shmq_slot *)(at + geo->slots);
    q->timer_keys = (uint64_t *)(at + geo->timer_keys);
    q->timer_slots = (uint32_t *)(at + geo->timer_slots);
    q->order_keys = (uint64_t *)(at + geo->order_keys);
    q->order_slots = (uint32_t *)(at + geo->order_slots);
    q->groups = (struct shmq_group *)(at + geo->groups);
    q->group_buckets = (uint32_t *)(at + geo->group_buckets);
    q->dedupe = (struct shmq_dedupe *)(at + geo->dedupe);
    q->dedupe_buckets = (uint32_t *)(at + geo->dedupe_buckets);
    q->logged = (struct shmq_logged *)(at + geo->logged);
    q->fresh = (uint32_t *)(at + geo->fresh);
    q->spent = (uint32_t *)(at + geo->spent);
    q->amended = (struct shmq_amended *)(at + geo->amended);
    q->failures = (struct shmq_failure_type *)(at + geo->failures);
    q->bitmap = (uint64_t *)(at + geo->bitmap);
    q->arena = (unsigned char *)(at + geo->arena);
    q->random = (uint64_t)(uintptr_t)q | 1;
    shmq_seal_init(&q->seal, q->h->options.queue_id);
    know_options(q);
}

static uint32_t checksum(const struct shmq_header *h)
{
    uint32_t crc = shmq_crc32c(0, &h->options, offsetof(struct shmq_options, policies));

    return shmq_crc32c(crc, &h->segment_bytes, sizeof h->segment_bytes);
}

uint32_t shmq_policies_checksum(const struct shmq_policies *policies)
{
    return shmq_crc32c(0, policies, offsetof(struct shmq_policies, crc));
}

bool shmq_read_policies(const struct shmq_header *h, struct shmq_policies *policies,
                        uint32_t *alterations)
{
    do {
        *alterations = GET_ACQUIRE(h->alterations);
        *policies = h->options.policies[*alterations & 1];
        if (policies->crc == shmq_policies_checksum(policies))
            return true;
        shmq_read_fence();
    } while (*alterations != GET_ACQUIRE(h->alterations)); /* two alterations came in between */
    return false;
}

void shmq_prepare(struct shmq_queue *q, const struct shmq_options *options)
{
    struct shmq_header *h = q->h;

    SET(h->options, *options);
    SET(h->options.policies[0].crc, shmq_policies_checksum(&h->options.policies[0]));
    know_options(q);
    SET(h->segment_bytes, q->geo.segment_bytes);
    SET(h->crc, checksum(h));
    SET_ATOMIC(h->next_tick, 0);
    SET(h->alarm, INT64_MAX);
    SET(h->samples[0].at, shmq_now());
    SET(h->samples[1].at, h->samples[0].at);
    SET(h->unused_since, h->samples[0].at);
    /* Receipts of an older queue of this name mean nothing here: serials start anywhere. */
    SET(h->serial, (options->queue_id * 0x9E3779B97F4A7C15ull) & SHMQ_SERIAL_MAX);
    SET(h->dedupe_head, 1);
    SET(h->dedupe_tail, 1);
    SET(h->group_free, SHMQ_NIL);
    shmq_list_clear(&h->leases);
    shmq_list_clear(&h->dying);
    for (int p = 0; p < SHMQ_MAX_PRIORITIES; p++)
        shmq_list_clear(&h->fifo[p]);
    for (int c = 0; c < SHMQ_CLASSES; c++) {
        SET(h->free[c], SHMQ_NIL);
        SET(h->spare[c], SHMQ_NIL);
    }
}

void shmq_announce(struct shmq_queue *q)
{
    SET_RELEASE(q->h->published, (uint64_t)SHMQ_MAGIC << 32 | SHMQ_LAYOUT_VERSION);
}

static bool sane(const struct shmq_options *o)
{
    return o->capacity >= 1 && o->capacity <= SHMQ_MAX_CAPACITY && o->priorities >= 1 &&
           o->priorities <= SHMQ_MAX_PRIORITIES && o->arena_bytes >= 1 &&
           o->arena_bytes <= 1ull << 37 && o->durability <= SHMQ_JOURNAL &&
           memchr(o->name, 0, sizeof o->name) && memchr(o->dead_letter, 0, sizeof o->dead_letter);
}

/* Whether the sizes are within the layout. */
static bool fits(const struct shmq_policies *policies, const struct shmq_geometry *geo)
{
    return policies->capacity >= 1 && policies->capacity <= geo->slots_max &&
           policies->arena_bytes >= 1 && policies->arena_bytes <= (uint64_t)geo->units * SHMQ_UNIT;
}

int shmq_inspect(const void *base, uint64_t mapped, uint64_t size, struct shmq_geometry *geo)
{
    const struct shmq_header *h = base;
    struct shmq_policies policies;
    uint32_t alterations;
    uint64_t published;

    if (mapped < SHMQ_PAGE || size < SHMQ_PAGE)
        return SHMQ_TRUNCATED;
    published = GET_ACQUIRE(h->published);
    if (!published)
        return SHMQ_NOT_READY;
    if (published >> 32 != SHMQ_MAGIC)
        return SHMQ_DAMAGED;
    if ((uint32_t)published != SHMQ_LAYOUT_VERSION)
        return SHMQ_INCOMPATIBLE;
    if (checksum(h) != h->crc || !sane(&h->options) ||
        !shmq_read_policies(h, &policies, &alterations))
        return SHMQ_DAMAGED;
    shmq_lay_out(&h->options, geo);
    if (geo->segment_bytes != h->segment_bytes || !fits(&policies, geo))
        return SHMQ_DAMAGED;
    return size < geo->segment_bytes ? SHMQ_TRUNCATED : SHMQ_OK;
}

uint32_t shmq_version_of(const void *base)
{
    return (uint32_t)GET_ACQUIRE(((const struct shmq_header *)base)->published);
}
