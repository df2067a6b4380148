#include "stream/log.h"

#define STEP (256u << 10) /* bytes of the ring that get memory together, at least        */

/* ---- what must be retained ---- */

/* The position from which on the holds let nothing be overwritten. */
static uint64_t held_from(const struct shmq_log *log)
{
    uint64_t floor = UINT64_MAX;

    for (uint32_t at = 0; at < SHMQ_HOLDS && at < GET_ATOMIC(log->h->holds_made); at++) {
        const struct shmq_hold *hold = &log->holds[at];
        uint32_t kind = GET_ACQUIRE(hold->kind);
        uint64_t position;

        if (kind == SHMQ_HOLD_FREE || kind == SHMQ_HOLD_LOAN ||
            (kind == SHMQ_HOLD_CURSOR && !log->blocks))
            continue;
        position = GET_ACQUIRE(hold->position);
        floor = position < floor ? position : floor;
    }
    return floor;
}

/* The position from which on nothing may be overwritten. */
static uint64_t floor_of(const struct shmq_log *log)
{
    uint64_t held = held_from(log), synced;

    if (!log->durable)
        return held;
    synced = GET_ACQUIRE(log->h->synced_position);
    return synced < held ? synced : held;
}

/* The first entry that begins at or behind `position`, found by a walk; committed if none. */
static uint64_t entry_behind(const struct shmq_log *log, uint64_t position)
{
    uint64_t committed = shmq_log_committed(log), at = shmq_log_oldest(log);
    struct shmq_peeked_entry g;

    while (at < position && at < committed) {
        if (!shmq_log_step(log, &at, committed, &g))
            return committed;
        if (at < position)
            at += g.size;
    }
    return at < committed ? at : committed;
}

/* The release fence keeps writes over the entries behind the store that announces them:
 * shmq_log_holds has its counterpart. */
static void let_go(struct shmq_log *log, uint64_t position)
{
    SET_RELEASE(log->h->oldest, position);
#ifndef __SANITIZE_THREAD__ /* knows no fences */
    atomic_thread_fence(memory_order_release);
#endif
}

/* Removes the entries before `position`; also more of them, up to the next one in the index, if
 * that is allowed, as it costs no walk. SHMQ_FULL: some of them must stay. */
static int let_go_before(struct shmq_log *log, uint64_t position)
{
    uint64_t floor = floor_of(log), target = shmq_log_indexed_behind(log, position);

    if (target > floor)
        target = entry_behind(log, position);
    if (target > floor)
        return SHMQ_FULL;
    let_go(log, target);
    return SHMQ_OK;
}

/* ---- memory ---- */

static int back_index(struct shmq_log *log, uint64_t count)
{
    uint64_t begin = (uint64_t)((unsigned char *)log->index - (unsigned char *)log->h);
    uint64_t had = log->h->indexed, size = sizeof(struct shmq_index_entry);
    int status;

    if (count > log->index_count)
        count = log->index_count;
    if (count <= had)
        return SHMQ_OK;
    if (!(status = shmq_log_back(log, begin + had * size, (count - had) * size)))
        SET(log->h->indexed, count);
    return status;
}

static int back_ring(struct shmq_log *log, uint64_t place, uint64_t upto)
{
    uint64_t *backed = &log->h->backed[place != 0], had = *backed;
    uint64_t ring = (uint64_t)(log->ring - (unsigned char *)log->h) + place;
    int status;

    if (upto <= had)
        return SHMQ_OK;
    if (!(status = shmq_log_back(log, ring + had, upto - had)))
        SET(*backed, upto);
    return status;
}

/* Allocates memory for the ring up to `end`, in growing steps, until it has wrapped once. The whole
 * index comes with the last step: from then on no append needs memory. */
static int extend(struct shmq_log *log, uint64_t end)
{
    struct shmq_log_header *h = log->h;
    const struct shmq_ring *ring = &shmq_log_settings(log)->ring;
    uint64_t had = h->backed[ring->place != 0], step = had / 2 > STEP ? had / 2 : STEP;
    uint64_t most = ring->bytes, need = end - ring->begin, want = had + step, reach;
    int status = SHMQ_OK;

    need = need < most ? need : most;
    want = want < need ? need : want > most ? most : want;
    if (need > had && back_ring(log, ring->place, want))
        status = back_ring(log, ring->place, shmq_page_up(need));
    had = h->backed[ring->place != 0];
    if (!status)
        status = back_index(log, had < most ? (ring->begin + had) / SHMQ_INDEX_STEP + 3
                                            : log->index_count);
    if (status)
        return status;
    reach = had < most ? ring->begin + had : UINT64_MAX;
    SET(h->reach, reach);
    return SHMQ_OK;
}

/* Ensures: the ring up to `end` has memory. */
static int back(struct shmq_log *log, uint64_t end)
{
    return __builtin_expect(end <= log->h->reach, 1) ? SHMQ_OK : extend(log, end);
}

int shmq_log_back_producers(struct shmq_log *log)
{
    uint64_t begin = (uint64_t)((unsigned char *)log->producers - (unsigned char *)log->h);
    int status;

    if (__builtin_expect(log->h->producers_backed, 1))
        return SHMQ_OK;
    status = shmq_log_back(log, begin, SHMQ_PRODUCERS * sizeof(struct shmq_produced));
    if (!status)
        SET(log->h->producers_backed, 1);
    return status;
}

/* ---- room ---- */

/* The position from which on there are `bytes` of entries up to `end`, without the pad; 0 if there
 * are fewer. */
static uint64_t position_before(uint64_t end, uint64_t bytes, const struct shmq_log_wrap *wrap)
{
    if (end < bytes || end - bytes >= wrap->position)
        return end < bytes ? 0 : end - bytes;
    return end - bytes > wrap->pad ? end - bytes - wrap->pad : 0;
}

/* The last entry that begins at or before `position`, found by a walk. The entries passed are
 * removed with it, so a walk costs each of them once. */
static uint64_t entry_before(const struct shmq_log *log, uint64_t position)
{
    uint64_t committed = shmq_log_committed(log), at = shmq_log_oldest(log), found = at;
    struct shmq_peeked_entry g;

    while (shmq_log_step(log, &at, committed, &g) && at <= position) {
        found = at;
        at += g.size;
    }
    return at == committed && at <= position ? committed : found;
}

/* Removes entries beyond retention_bytes, as far as allowed, and up to a tenth more if the index
 * has an entry there, as that costs no walk; but never so many that less than nine tenths stay. */
static void let_go_beyond(struct shmq_log *log, uint64_t end, uint64_t kept,
                          const struct shmq_log_wrap *wrap)
{
    uint64_t least = kept - kept / 10;
    uint64_t latest = position_before(end, least, wrap), floor = floor_of(log), target;

    latest = floor < latest ? floor : latest;
    if (latest <= shmq_log_oldest(log))
        return;
    target = shmq_log_indexed_behind(log, position_before(end, kept, wrap));
    if (target > latest)
        target = entry_before(log, latest);
    if (target > shmq_log_oldest(log))
        let_go(log, target);
}

int shmq_log_make_room(struct shmq_log *log, uint64_t end, const struct shmq_log_wrap *wrap)
{
    const struct shmq_log_settings *now = shmq_log_settings(log);
    uint64_t kept = now->retention_bytes;
    int status;

    if (kept && end - shmq_log_oldest(log) > kept &&
        position_before(end, kept, wrap) > shmq_log_oldest(log))
        let_go_beyond(log, end, kept, wrap);
    if (__builtin_expect(end - shmq_log_oldest(log) > now->ring.bytes, 0) &&
        (status = let_go_before(log, end - now->ring.bytes)))
        return status;
    return back(log, end);
}

int shmq_log_reserve(struct shmq_log *log, uint64_t bytes)
{
    int status = shmq_log_back_producers(log);

    if (status)
        return status;
    return back(log, shmq_log_committed(log) + shmq_log_settings(log)->most_entry + bytes);
}

/* ---- age ---- */

static bool first_seen(const struct shmq_log *log, uint64_t at, int64_t *seen)
{
    struct shmq_peeked_entry g;

    if (!shmq_log_step(log, &at, shmq_log_committed(log), &g))
        return false;
    *seen = g.seen;
    return true;
}

bool shmq_log_is_stale(const struct shmq_log *log)
{
    int64_t retention = shmq_log_retention(log), seen;

    return retention && first_seen(log, shmq_log_oldest(log), &seen) &&
           seen < shmq_wall() - retention;
}

void shmq_log_expire(struct shmq_log *log)
{
    int64_t retention = shmq_log_retention(log), until = shmq_wall() - retention;
    uint64_t committed = shmq_log_committed(log), floor = floor_of(log);
    uint64_t at = shmq_log_oldest(log);
    struct shmq_peeked_entry g;

    if (!retention)
        return;
    at = shmq_log_near_time(log, at, committed, until);
    while (at < floor && at < committed && shmq_log_step(log, &at, committed, &g) && g.seen < until)
        at += g.size;
    if (at > shmq_log_oldest(log) && at <= floor)
        let_go(log, at < committed ? at : committed);
}

/* ---- holds ---- */

static int position_of(const struct shmq_log *log, uint64_t offset, uint64_t hint,
                       uint64_t *position)
{
    struct shmq_log_extent extent;
    int status = shmq_log_find(log, offset, UINT64_MAX, 1, 0, hint, &extent);

    *position = extent.begin;
    return status;
}

int shmq_log_hold(struct shmq_log *log, uint32_t kind, uint64_t owner, uint64_t tag,
                  uint64_t offset, uint32_t *at)
{
    uint64_t position;
    int status = position_of(log, offset, UINT64_MAX, &position);

    return status ? status : shmq_log_hold_at(log, kind, owner, tag, position, 0, at);
}

int shmq_log_hold_at(struct shmq_log *log, uint32_t kind, uint64_t owner, uint64_t tag,
                     uint64_t position, uint64_t place, uint32_t *at)
{
    for (*at = 0; *at < SHMQ_HOLDS; ++*at) {
        struct shmq_hold *hold = &log->holds[*at];

        if (GET_RELAXED(hold->kind) != SHMQ_HOLD_FREE)
            continue;
        if (*at >= log->h->holds_made)
            SET_ATOMIC(log->h->holds_made, *at + 1);
        SET(hold->owner, owner);
        SET(hold->tag, tag);
        SET(hold->place, place);
        SET_RELAXED(hold->position, position);
        SET_RELEASE(hold->kind, kind);
        return SHMQ_OK;
    }
    return SHMQ_CROWDED;
}

/* While another hold is as far behind as this one was, no room was gained. Of two
 * that move at the same time, one at least sees the other at its new place: each looks behind the
 * fence that follows its own store. */
static void move_on(struct shmq_log *log, struct shmq_hold *hold, uint64_t offset, uint64_t hint)
{
    uint64_t before = GET_RELAXED(hold->position), position;
    struct shmq_log_bounds bounds;

    if (position_of(log, offset, hint, &position)) {
        if (shmq_log_bounds(log, &bounds))
            return;
        position = offset < bounds.earliest ? bounds.oldest : bounds.committed;
    }
    if (position <= before)
        return;
    SET_RELEASE(hold->position, position);
    shmq_fence();
    if (GET_RELAXED(log->h->crowded) && held_from(log) > before)
        shmq_log_wake_room(log);
}

bool shmq_log_move(struct shmq_log *log, uint32_t at, uint64_t owner, uint64_t tag, uint64_t offset,
                   uint64_t hint)
{
    struct shmq_hold *hold = &log->holds[at % SHMQ_HOLDS];

    if (GET_ACQUIRE(hold->kind) != SHMQ_HOLD_CURSOR || GET_ATOMIC(hold->owner) != owner ||
        GET_ATOMIC(hold->tag) != tag)
        return false;
    move_on(log, hold, offset, hint);
    return true;
}

void shmq_log_drop(struct shmq_log *log, uint32_t at)
{
    if (GET_RELAXED(log->h->loaned) == at % SHMQ_HOLDS + 1) {
        SET_RELAXED(log->h->loaned, 0);
    }
    SET_RELEASE(log->holds[at % SHMQ_HOLDS].kind, SHMQ_HOLD_FREE);
    shmq_log_wake_room(log);
}
