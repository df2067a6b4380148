#include "queue/slot.h"

#include "queue/segment.h"

/* Up to SHMQ_SMALL_UNITS every size is a class; above, four sizes per doubling. */
static uint64_t round_up(uint64_t units)
{
    uint64_t step;

    if (units <= SHMQ_SMALL_UNITS || units > SHMQ_CLASS_UNITS)
        return units;
    step = 1ull << (63 - __builtin_clzll(units - 1)) >> 2; /* a quarter of the power below */
    return (units + step - 1) / step * step;
}

uint32_t shmq_units_for(const struct shmq_queue *q, uint64_t bytes)
{
    uint64_t units = shmq_units_of(bytes), rounded = round_up(units);

    return (uint32_t)(rounded == units || rounded <= shmq_units(q) ? rounded : units);
}

uint32_t shmq_class_of(uint32_t units)
{
    uint32_t power;

    if (units > SHMQ_CLASS_UNITS || round_up(units) != units)
        return 0;
    if (units <= SHMQ_SMALL_UNITS)
        return units;
    power = 31 - (uint32_t)__builtin_clz(units - 1); /* 3 for 9..16, 4 for 17..32, ... */
    return 9 + (power - 3) * 4 + (units - (1u << power)) / (1u << (power - 2)) - 1;
}

/* Ensures: bits [at, at + count) are `used`; false if any of them was already. */
static bool mark(struct shmq_queue *q, uint32_t at, uint32_t count, bool used)
{
    bool clean = true;

    while (count) {
        uint32_t bit = at % 64, span = 64 - bit < count ? 64 - bit : count;
        uint64_t mask = (span == 64 ? ~0ull : (1ull << span) - 1) << bit;
        uint64_t *word = &q->bitmap[at / 64];

        if (used ? (*word & mask) != 0 : (~*word & mask) != 0)
            clean = false;
        SET(*word, used ? *word | mask : *word & ~mask);
        at += span;
        count -= span;
    }
    return clean;
}

struct gap {
    uint32_t start, end; /* units */
};

/* The next run of free units in [at, limit); start == limit if there is none. It is cut off
 * once it has `enough` units. */
static struct gap next_gap(const uint64_t *bitmap, uint32_t at, uint32_t limit, uint32_t enough)
{
    struct gap gap = {limit, limit};

    while (at < limit) {
        uint64_t word = bitmap[at / 64] >> at % 64;
        uint32_t left = 64 - at % 64;

        if (gap.start == limit && word & 1) {
            uint32_t ones = ~word ? (uint32_t)__builtin_ctzll(~word) : 64;
            at += ones < left ? ones : left;
            continue;
        }
        if (gap.start == limit)
            gap.start = at;
        if (word) {
            gap.end = at + (uint32_t)__builtin_ctzll(word);
            if (gap.end > limit)
                gap.end = limit;
            return gap;
        }
        at += left;
        if (at < limit && at - gap.start >= enough) {
            gap.end = at;
            return gap;
        }
    }
    return gap;
}

static void taken(struct shmq_queue *q, uint32_t block, uint32_t units)
{
    if (!mark(q, block, units, true))
        q->damaged = true;
    SET(q->h->units_used, q->h->units_used + units);
}

/* The units that have memory, of an arena of so many. */
static uint32_t usable(const struct shmq_queue *q, uint32_t all)
{
    return q->h->units_backed < all ? q->h->units_backed : all;
}

/* First fit among the backed units; else the end of them, with more behind it. */
int shmq_arena_take(struct shmq_queue *q, uint32_t units, uint32_t *block, bool may_grow)
{
    struct shmq_header *h = q->h;
    uint32_t all = shmq_units(q), limit = usable(q, all);
    uint32_t at = h->units_hint;
    bool first = true;
    int status;

    if (h->units_used > all || units > all - h->units_used)
        return SHMQ_FULL;
    for (;;) {
        struct gap gap = next_gap(q->bitmap, at, limit, units);

        if (first)
            SET(h->units_hint, gap.start);
        if (gap.end == limit && gap.end - gap.start < units) {
            if (!may_grow || units > all - gap.start)
                return SHMQ_FULL;
            if ((status = shmq_back_units(q, gap.start + units)))
                return status;
            gap.end = gap.start + units;
        }
        if (gap.end - gap.start >= units) {
            if (first)
                SET(h->units_hint, gap.start + units);
            *block = gap.start;
            taken(q, gap.start, units);
            return SHMQ_OK;
        }
        first = false;
        at = gap.end;
    }
}

void shmq_arena_give(struct shmq_queue *q, uint32_t block, uint32_t units)
{
    if (block >= q->geo.units || units > q->geo.units - block) {
        q->damaged = true;
        return;
    }
    if (!mark(q, block, units, false))
        q->damaged = true;
    SET(q->h->units_used, q->h->units_used - units);
    if (block < q->h->units_hint)
        SET(q->h->units_hint, block);
}

bool shmq_arena_claim(struct shmq_queue *q, uint32_t block, uint32_t units)
{
    if (block >= q->h->units_backed || units > q->h->units_backed - block)
        return false;
    SET(q->h->units_used, q->h->units_used + units);
    return mark(q, block, units, true);
}

void shmq_arena_clear(struct shmq_queue *q)
{
    uint32_t words = (q->h->units_backed + 63) / 64;

    for (uint32_t i = 0; i < words; i++)
        q->bitmap[i] = 0;
    shmq_mark();
    SET(q->h->units_used, 0);
    SET(q->h->units_cached, 0);
    SET(q->h->units_hint, 0);
}

uint32_t shmq_arena_top(struct shmq_queue *q)
{
    for (uint32_t i = (q->h->units_backed + 63) / 64; i-- > 0;)
        if (q->bitmap[i])
            return i * 64 + 64 - (uint32_t)__builtin_clzll(q->bitmap[i]);
    return 0;
}

uint32_t shmq_arena_largest(struct shmq_queue *q)
{
    uint32_t all = shmq_units(q), limit = usable(q, all), at = 0, most = 0;

    while (at < limit) {
        struct gap gap = next_gap(q->bitmap, at, limit, UINT32_MAX);

        if (gap.end == limit)
            gap.end = all;
        if (gap.end - gap.start > most)
            most = gap.end - gap.start;
        at = gap.end;
    }
    return most > all - limit ? most : all - limit;
}
