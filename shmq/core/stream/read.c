#include <string.h>

#include "stream/log.h"

#define TRIES 100 /* of a reader that is overtaken while it looks */

bool shmq_log_holds(const struct shmq_log *log, uint64_t position)
{
    shmq_read_fence();
    return shmq_log_oldest(log) <= position;
}

/* ---- the records that are there ---- */

/* The offset behind the last entry. `next` belongs to `settled` or later; entries published
 * since are walked over. SHMQ_BUSY: overtaken. */
static int latest(const struct shmq_log *log, uint64_t *offset)
{
    struct shmq_log_header *h = log->h;
    uint64_t settled = GET_ACQUIRE(h->settled);
    uint64_t next = GET_ACQUIRE(h->next);
    uint64_t committed = shmq_log_committed(log), at = settled;
    struct shmq_peeked_entry g;

    *offset = next;
    while (at < committed) {
        if (!shmq_log_step(log, &at, committed, &g))
            return shmq_log_holds(log, settled) ? SHMQ_DAMAGED : SHMQ_BUSY;
        *offset = g.offset + g.count;
        at += g.size;
    }
    return settled == committed || shmq_log_holds(log, settled) ? SHMQ_OK : SHMQ_BUSY;
}

static int try_bounds(const struct shmq_log *log, struct shmq_log_bounds *b)
{
    uint64_t at;
    struct shmq_peeked_entry g;
    int status = latest(log, &b->latest);

    b->oldest = at = shmq_log_oldest(log);
    b->committed = shmq_log_committed(log);
    b->earliest = b->latest;
    b->earliest_at = b->latest_at = 0;
    if (status || b->oldest == b->committed)
        return status;
    if (!shmq_log_step(log, &at, b->committed, &g))
        return shmq_log_holds(log, b->oldest) ? SHMQ_DAMAGED : SHMQ_BUSY;
    b->earliest = g.offset;
    b->earliest_at = g.seen;
    b->latest_at = GET_ATOMIC(log->h->last_seen);
    if (b->latest < b->earliest)
        return SHMQ_BUSY; /* all entries of that time have been overwritten */
    return shmq_log_holds(log, b->oldest) ? SHMQ_OK : SHMQ_BUSY;
}

int shmq_log_bounds(const struct shmq_log *log, struct shmq_log_bounds *bounds)
{
    int status = SHMQ_BUSY;

    for (int tries = 0; tries < TRIES && status == SHMQ_BUSY; tries++)
        status = try_bounds(log, bounds);
    return status == SHMQ_BUSY ? SHMQ_OK : status;
}

/* ---- finding ---- */

struct search {
    uint64_t offset, end, limit, most;
    uint64_t start, committed; /* of the walk */
};

/* The first step reaches the entry with the offset. */
static int seek(const struct shmq_log *log, struct search *s, struct shmq_log_spot *spot,
                struct shmq_peeked_entry *g)
{
    while (spot->position < s->committed) {
        if (!shmq_log_look(log, spot, s->committed, g))
            return SHMQ_DAMAGED;
        if (g->offset + g->count > s->offset)
            return g->offset <= s->offset ? SHMQ_OK : SHMQ_OUT_OF_RANGE;
        shmq_log_pass(log, spot, g->size);
    }
    return SHMQ_EMPTY;
}

/* The target of a step is known only once its line has come from the appender's cache: meanwhile
 * later lines are prefetched, except those being written. */
static inline void fetch_ahead(const struct shmq_log *log, const struct search *s,
                               const struct shmq_log_spot *spot, uint64_t size)
{
    uint64_t at = spot->at + SHMQ_AHEAD, end = at + size;

    if (spot->position + SHMQ_AHEAD + size >= s->committed || end > spot->end)
        return;
    for (; at < end; at += SHMQ_LINE)
        __builtin_prefetch(log->ring + at);
}

/* The bytes from `spot` on, before the end of the ring, in which `x` may have further entries. */
static uint64_t room_for(const struct search *s, const struct shmq_log_spot *spot,
                         const struct shmq_log_extent *x)
{
    uint64_t left = spot->end - spot->at, there = s->committed - spot->position;
    uint64_t allowed = s->most > x->bytes ? s->most - x->bytes : 0;

    left = there < left ? there : left;
    return allowed < left ? allowed : left;
}

/* The short form of the loop in `gather`: passes entries of one record each that lie behind each
 * other and have consecutive offsets. */
static void pass_records(const struct shmq_log *log, const struct search *s,
                         struct shmq_log_spot *spot, struct shmq_log_extent *x)
{
    uint64_t left = room_for(s, spot, x), most = s->limit - (x->next - s->offset);
    uint64_t count = 0, passed = 0, size;

    if (spot->at == spot->start || x->next >= s->end || x->next - s->offset >= s->limit)
        return;
    most = s->end - x->next < most ? s->end - x->next : most;
    for (; count < most && left - passed >= SHMQ_ENTRY_HEAD; count++, passed += size) {
        const unsigned char *at = log->ring + spot->at + passed;

        size = 8 + (shmq_entry_word(at) & UINT32_MAX) * 8;
        if (size < SHMQ_ENTRY_HEAD || size > left - passed || !shmq_entry_is_record(at) ||
            shmq_entry_word(at + 16) != x->next + count)
            break;
        if (size <= SHMQ_AHEAD && passed + size + SHMQ_AHEAD + size < left)
            for (uint64_t line = SHMQ_AHEAD; line < SHMQ_AHEAD + size; line += SHMQ_LINE)
                __builtin_prefetch(at + size + line);
    }
    x->entries += count;
    x->next += count;
    x->bytes += passed;
    shmq_log_pass(log, spot, passed);
}

/* Takes entries from `spot` on, `g` being the first. There may be one gap between two of them: the
 * ring wraps, behind a pad or without one, or leaves out a loan. */
static void gather(const struct shmq_log *log, const struct search *s, struct shmq_log_spot spot,
                   struct shmq_peeked_entry *g, struct shmq_log_extent *x)
{
    x->begin = x->end = x->wrap = x->resume = spot.position;
    x->first = g->offset;
    x->seen = g->seen;
    for (;;) {
        if (x->entries && (spot.position != x->end || spot.at == spot.start)) {
            if (x->wrap != x->begin)
                return;
            x->wrap = x->end;
            x->resume = spot.position;
        }
        x->packed |= g->compression != SHMQ_PLAIN;
        x->bytes += g->size;
        x->entries++;
        x->next = g->offset + g->count;
        shmq_log_pass(log, &spot, g->size);
        if (g->size <= SHMQ_AHEAD)
            fetch_ahead(log, s, &spot, g->size);
        pass_records(log, s, &spot, x);
        x->end = spot.position;
        if (!shmq_log_look(log, &spot, s->committed, g) || g->offset >= s->end ||
            g->offset + g->count - s->offset > s->limit || x->bytes + g->size > s->most)
            return;
    }
}

/* No such entry exists: `offset` is the next one, or out of range. */
static int behind_all(const struct shmq_log *log, const struct search *s, struct shmq_log_extent *x)
{
    struct shmq_log_bounds b;
    int status = shmq_log_bounds(log, &b);

    if (status)
        return status;
    if (b.committed != s->committed)
        return SHMQ_BUSY;
    x->begin = x->end = x->wrap = x->resume = b.committed;
    x->first = x->next = s->offset;
    return s->offset == b.latest ? SHMQ_OK : SHMQ_OUT_OF_RANGE;
}

static int try_find(const struct shmq_log *log, struct search *s, uint64_t hint,
                    struct shmq_log_extent *x)
{
    uint64_t oldest = shmq_log_oldest(log), at;
    struct shmq_log_spot spot;
    struct shmq_peeked_entry g;
    int status;

    memset(x, 0, sizeof *x);
    x->first = x->next = s->offset;
    s->committed = shmq_log_committed(log);
    if (hint >= oldest && hint <= s->committed)
        at = hint;
    else
        at = shmq_log_near_offset(log, oldest, s->committed, s->offset);
    s->start = at;
    if (at == s->committed && at == hint) {
        x->begin = x->end = x->wrap = x->resume = at;
        return SHMQ_OK;
    }
    spot = shmq_log_spot(log, at);
    status = seek(log, s, &spot, &g);
    if (status == SHMQ_EMPTY)
        return behind_all(log, s, x);
    if (status == SHMQ_OK && s->offset >= s->end)
        x->begin = x->end = x->wrap = x->resume = spot.position; /* none is wanted */
    else if (status == SHMQ_OK)
        gather(log, s, spot, &g, x);
    return shmq_log_holds(log, s->start) ? status : SHMQ_BUSY;
}

int shmq_log_find(const struct shmq_log *log, uint64_t offset, uint64_t end, uint64_t limit,
                  uint64_t most, uint64_t hint, struct shmq_log_extent *extent)
{
    struct search s = {.offset = offset, .end = end, .limit = limit, .most = most};
    int status = SHMQ_BUSY;

    for (int tries = 0; tries < TRIES && status == SHMQ_BUSY; tries++) {
        uint32_t state = GET_RELAXED(log->h->state);

        if (__builtin_expect(state != SHMQ_OPEN, 0))
            return state == SHMQ_GONE ? SHMQ_DELETED : SHMQ_DAMAGED;
        status = try_find(log, &s, hint, extent);
        hint = UINT64_MAX;
    }
    return status == SHMQ_BUSY ? SHMQ_OUT_OF_RANGE : status;
}

/* ---- copying ---- */

static inline __attribute__((always_inline)) int pieces_of(const struct shmq_log *log,
                                                           const struct shmq_log_extent *x,
                                                           const unsigned char *at[2],
                                                           uint64_t bytes[2])
{
    at[0] = at[1] = shmq_log_byte(log, x->begin);
    if (x->wrap == x->begin) {
        bytes[0] = x->end - x->begin;
        bytes[1] = 0;
        return x->entries ? 1 : 0;
    }
    at[1] = shmq_log_byte(log, x->resume);
    bytes[0] = x->wrap - x->begin;
    bytes[1] = x->end - x->resume;
    return 2;
}

int shmq_log_pieces(const struct shmq_log *log, const struct shmq_log_extent *x,
                    const unsigned char *at[2], uint64_t bytes[2])
{
    return pieces_of(log, x, at, bytes);
}

#ifdef __SANITIZE_THREAD__
static void take(void *to, const unsigned char *from, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 8)
        *(uint64_t *)((char *)to + i) = __atomic_load_n((const uint64_t *)(const void *)(from + i),
                                                        __ATOMIC_RELAXED);
}
#else
static void take(void *to, const unsigned char *from, uint64_t bytes) { memcpy(to, from, bytes); }
#endif

bool shmq_log_copy(const struct shmq_log *log, const struct shmq_log_extent *extent, void *to)
{
    const unsigned char *at[2];
    uint64_t bytes[2];
    int pieces = pieces_of(log, extent, at, bytes);

    /* Once two alterations have come since the entries were found, they may be said to be anywhere; what
     * was there has gone before. */
    if (__builtin_expect(GET_ACQUIRE(log->h->settings_made) != 0, 0) &&
        !shmq_log_holds(log, extent->begin))
        return false;
    for (int i = 0; i < pieces; i++) {
        take(to, at[i], bytes[i]);
        to = (unsigned char *)to + bytes[i];
    }
    return shmq_log_holds(log, extent->begin);
}

/* ---- by time ---- */

static int try_at(const struct shmq_log *log, int64_t time, uint64_t *offset)
{
    uint64_t oldest = shmq_log_oldest(log), committed = shmq_log_committed(log);
    uint64_t start = shmq_log_near_time(log, oldest, committed, time), at = start;
    struct shmq_peeked_entry g;

    while (at < committed) {
        if (!shmq_log_step(log, &at, committed, &g))
            return shmq_log_holds(log, start) ? SHMQ_DAMAGED : SHMQ_BUSY;
        *offset = g.offset;
        if (g.seen >= time)
            return shmq_log_holds(log, start) ? SHMQ_OK : SHMQ_BUSY;
        at += g.size;
    }
    return shmq_log_holds(log, start) ? SHMQ_EMPTY : SHMQ_BUSY;
}

int shmq_log_at(const struct shmq_log *log, int64_t time, uint64_t *offset)
{
    struct shmq_log_bounds b;
    int status = SHMQ_BUSY;

    for (int tries = 0; tries < TRIES && status == SHMQ_BUSY; tries++)
        status = try_at(log, time, offset);
    if (status == SHMQ_OK || status == SHMQ_DAMAGED)
        return status;
    status = shmq_log_bounds(log, &b);
    *offset = b.latest;
    return status;
}
