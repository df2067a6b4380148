#include "stream/group_state.h"

#include <endian.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/shared_memory.h"
#include "base/futex.h"

static const int64_t FOREVER = INT64_MAX;

static const uint64_t MEMBERS_AT = SHMQ_PAGE;
static const uint64_t PARTITIONS_AT = SHMQ_PAGE + SHMQ_MAX_MEMBERS * sizeof(struct shmq_member);
static const uint64_t HELD_AT = SHMQ_PAGE + SHMQ_MAX_MEMBERS * sizeof(struct shmq_member) +
                                SHMQ_MAX_GROUP_PARTITIONS * sizeof(struct shmq_group_partition);

/* ---- the file ---- */

static bool sane(const struct shmq_group_state_options *o)
{
    return o->group_id && o->session >= 0 && o->lease >= 0 && o->assignment <= SHMQ_SHARED &&
           o->latest <= 1 && o->max_deliveries <= SHMQ_DELIVERIES_MAX && o->held <= SHMQ_MAX_HELD &&
           (o->assignment == SHMQ_SHARED) == (o->held > 0) &&
           memchr(o->dead_letter, 0, sizeof o->dead_letter);
}

uint64_t shmq_group_state_bytes(const struct shmq_group_state_options *options)
{
    return sane(options) ? HELD_AT + options->held * sizeof(struct shmq_held) : 0;
}

static uint32_t checksum(const struct shmq_group_state_header *h)
{
    uint32_t crc = shmq_crc32c(0, &h->options, sizeof h->options);

    return shmq_crc32c(crc, &h->bytes, sizeof h->bytes);
}

static void bind(struct shmq_group_state *r, void *base)
{
    char *at = base;

    r->h = base;
    r->members = (struct shmq_member *)(at + MEMBERS_AT);
    r->partitions = (struct shmq_group_partition *)(at + PARTITIONS_AT);
    r->held = (struct shmq_held *)(at + HELD_AT);
    r->capacity = r->h->options.held;
}

int shmq_group_state_format(void *base, uint64_t bytes,
                            const struct shmq_group_state_options *options)
{
    struct shmq_group_state_header *h = base;
    struct shmq_group_state r;

    if (!shmq_group_state_bytes(options) || bytes != shmq_group_state_bytes(options))
        return SHMQ_DAMAGED;
    SET(h->options, *options);
    SET(h->bytes, bytes);
    SET(h->crc, checksum(h));
    bind(&r, base);
    for (uint32_t p = 0; p < SHMQ_MAX_GROUP_PARTITIONS; p++) {
        SET_RELAXED(r.partitions[p].committed, SHMQ_NO_OFFSET);
        SET_RELAXED(r.partitions[p].next, SHMQ_NO_OFFSET);
    }
    /* Receipts of an older group of this name mean nothing here. */
    SET(h->serial, (options->group_id * 0x9E3779B97F4A7C15ull) & SHMQ_SERIAL_MAX);
    SET(h->next_due, FOREVER);
    SET_RELEASE(h->published, (uint64_t)SHMQ_GROUP_STATE_MAGIC << 32 | SHMQ_GROUP_STATE_VERSION);
    return SHMQ_OK;
}

int shmq_group_state_open(struct shmq_group_state *r, void *base, uint64_t size,
                          const struct shmq_process *self)
{
    const struct shmq_group_state_header *h = base;
    uint64_t published;

    if (size < SHMQ_PAGE)
        return SHMQ_TRUNCATED;
    published = GET_ACQUIRE(h->published);
    if (!published)
        return SHMQ_NOT_READY;
    if (published >> 32 != SHMQ_GROUP_STATE_MAGIC)
        return SHMQ_DAMAGED;
    if ((uint32_t)published != SHMQ_GROUP_STATE_VERSION)
        return SHMQ_INCOMPATIBLE;
    if (checksum(h) != h->crc || h->bytes != shmq_group_state_bytes(&h->options))
        return SHMQ_DAMAGED;
    if (size < h->bytes)
        return SHMQ_TRUNCATED;
    bind(r, base);
    r->self = self;
    return SHMQ_OK;
}

/* ---- the lock ---- */

/* The half of `change` that grows with each change: a futex is 32 bits. */
static _Atomic uint32_t *change_futex(const struct shmq_group_state *r)
{
    return (_Atomic uint32_t *)(void *)&r->h->change + (BYTE_ORDER == BIG_ENDIAN);
}

/* The wakeup of a process that dies before it is made by the guardians, which wake all that wait for
 * the stream. */
static void changed(struct shmq_group_state *r)
{
    atomic_fetch_add_explicit(&r->h->change, 1, memory_order_release);
    shmq_mark();
    shmq_futex_wake(change_futex(r));
}

int shmq_group_state_sleep(const struct shmq_group_state *r, uint64_t change,
                           struct shmq_stream *stream, uint32_t wakeup, int64_t ns)
{
    _Atomic uint32_t *const words[2] = {&stream->wakeup, change_futex(r)};
    const uint32_t values[2] = {wakeup, (uint32_t)change};

    return shmq_futex_wait_two(words, values, ns > 0 ? ns : 0);
}

/* The first store makes the plan void: members that see it compute a new one. */
static void new_epoch(struct shmq_group_state *r)
{
    atomic_fetch_add_explicit(&r->h->epoch, 1, memory_order_relaxed);
    shmq_mark();
    changed(r);
}

static bool is_member(const struct shmq_group_state *r, uint64_t id)
{
    for (uint32_t i = 0; i < SHMQ_MAX_MEMBERS; i++)
        if (id && GET_RELAXED(r->members[i].id) == id)
            return true;
    return false;
}

/* A holder died: releases partitions whose owner is not a member, recounts the held records, and
 * voids the plan. */
static void recover(struct shmq_group_state *r)
{
    for (uint32_t p = 0; p < SHMQ_MAX_GROUP_PARTITIONS; p++)
        if (GET_RELAXED(r->partitions[p].owner) &&
            !is_member(r, GET_RELAXED(r->partitions[p].owner)))
            SET_RELAXED(r->partitions[p].owner, 0);
    shmq_shared_group_recover(r);
    new_epoch(r);
    SET(r->h->recoveries, r->h->recoveries + 1);
}

int shmq_group_state_lock(struct shmq_group_state *r, int64_t ns)
{
    int status = shmq_mutex_take(&r->h->lock, r->self, ns);

    if (status == SHMQ_UNREGISTERED && GET_RELAXED(r->h->state) == SHMQ_GONE)
        return SHMQ_DELETED; /* a process leaves its namespace with the last stream */
    if (__builtin_expect(status == SHMQ_INHERITED, 0))
        recover(r);
    else if (status)
        return status;
    status = SHMQ_OK;
    if (__builtin_expect(GET_RELAXED(r->h->state) == SHMQ_GONE, 0))
        status = SHMQ_DELETED;
    else if (__builtin_expect(r->h->partitions > SHMQ_MAX_GROUP_PARTITIONS, 0))
        status = SHMQ_DAMAGED;
    if (status)
        shmq_mutex_drop(&r->h->lock);
    return status;
}

void shmq_group_state_unlock(struct shmq_group_state *r) { shmq_mutex_drop(&r->h->lock); }

uint64_t shmq_group_state_holder(const struct shmq_group_state *r)
{
    return shmq_mutex_holder(&r->h->lock);
}

void shmq_group_state_close(struct shmq_group_state *r)
{
    SET_RELAXED(r->h->state, SHMQ_GONE);
    changed(r);
}

/* ---- members ---- */

int shmq_group_state_widen(struct shmq_group_state *r, uint32_t partitions)
{
    if (partitions > SHMQ_MAX_GROUP_PARTITIONS)
        return SHMQ_CROWDED;
    if (partitions > r->h->partitions) {
        SET(r->h->partitions, partitions);
        new_epoch(r);
    }
    return SHMQ_OK;
}

static int64_t deadline_of(const struct shmq_group_state *r, int64_t now)
{
    return r->h->options.session ? now + r->h->options.session : FOREVER;
}

static uint32_t free_member(const struct shmq_group_state *r)
{
    for (uint32_t i = 0; i < SHMQ_MAX_MEMBERS; i++)
        if (!GET_RELAXED(r->members[i].id))
            return i;
    return SHMQ_NIL;
}

int shmq_group_state_join(struct shmq_group_state *r, uint64_t process, const char *name,
                          int64_t now, uint32_t *at, uint64_t *id)
{
    struct shmq_member *m;

    *at = free_member(r);
    if (*at == SHMQ_NIL)
        return SHMQ_CROWDED;
    m = &r->members[*at];
    *id = r->h->last_member + 1;
    SET(r->h->last_member, *id);
    SET(m->process, process);
    SET_RELAXED(m->deadline, deadline_of(r, now));
    SET(m->joined_at, shmq_wall());
    memset(m->name, 0, sizeof m->name);
    memcpy(m->name, name, strnlen(name, sizeof m->name - 1));
    shmq_mark();
    SET_RELAXED(m->id, *id);
    new_epoch(r);
    return SHMQ_OK;
}

/* The id is cleared first: from then on everything that names it has no owner (recover). */
int shmq_group_state_leave(struct shmq_group_state *r, uint64_t id, bool evicted, int64_t now)
{
    for (uint32_t i = 0; i < SHMQ_MAX_MEMBERS; i++) {
        if (!id || GET_RELAXED(r->members[i].id) != id)
            continue;
        SET_RELAXED(r->members[i].id, 0);
        if (evicted)
            SET(r->h->evicted, r->h->evicted + 1);
        for (uint32_t p = 0; p < r->h->partitions; p++)
            if (GET_RELAXED(r->partitions[p].owner) == id)
                SET_RELAXED(r->partitions[p].owner, 0);
        shmq_shared_group_orphan(r, id, now);
        new_epoch(r);
        return SHMQ_OK;
    }
    return SHMQ_STALE;
}

int shmq_group_state_beat(struct shmq_group_state *r, uint32_t at, uint64_t id, int64_t now)
{
    if (GET_RELAXED(r->h->state) == SHMQ_GONE)
        return SHMQ_DELETED;
    if (at >= SHMQ_MAX_MEMBERS || GET_RELAXED(r->members[at].id) != id)
        return SHMQ_STALE;
    SET_RELAXED(r->members[at].deadline, deadline_of(r, now));
    /* If the member was evicted in between and its place taken, the new member gets a deadline that
     * it could have set itself. */
    return GET_RELAXED(r->members[at].id) == id ? SHMQ_OK : SHMQ_STALE;
}

bool shmq_group_state_watch(struct shmq_group_state *r, int64_t ns, int64_t now)
{
    int64_t last = GET_RELAXED(r->h->looked_at);

    if (last <= now && now < last + ns)
        return false;
    return atomic_compare_exchange_strong(&r->h->looked_at, &last, now);
}

uint64_t shmq_group_state_silent(const struct shmq_group_state *r, int64_t now)
{
    for (uint32_t i = 0; i < SHMQ_MAX_MEMBERS; i++)
        if (GET_RELAXED(r->members[i].id) && GET_RELAXED(r->members[i].deadline) < now)
            return GET_RELAXED(r->members[i].id);
    return 0;
}

/* ---- partitions ---- */

/* `planned` is stored last: an interrupted plan is made again. */
int shmq_group_state_plan(struct shmq_group_state *r, uint64_t epoch, const uint64_t *owners,
                          uint32_t n)
{
    if (GET_RELAXED(r->h->epoch) != epoch || n != r->h->partitions)
        return SHMQ_STALE;
    for (uint32_t p = 0; p < n; p++)
        SET_RELAXED(r->partitions[p].plan, owners[p]);
    SET(r->h->rebalances, r->h->rebalances + 1);
    SET_RELAXED(r->h->planned, epoch);
    changed(r);
    return SHMQ_OK;
}

int shmq_group_partition_claim(struct shmq_group_state *r, uint32_t partition, uint64_t id)
{
    struct shmq_group_partition *p = &r->partitions[partition];

    if (partition >= r->h->partitions || GET_RELAXED(p->plan) != id || !is_member(r, id) ||
        GET_RELAXED(r->h->planned) != GET_RELAXED(r->h->epoch))
        return SHMQ_STALE;
    if (GET_RELAXED(p->owner))
        return GET_RELAXED(p->owner) == id ? SHMQ_OK : SHMQ_BUSY;
    SET(p->moves, p->moves + 1);
    SET_RELAXED(p->owner, id);
    changed(r);
    return SHMQ_OK;
}

int shmq_group_partition_release(struct shmq_group_state *r, uint32_t partition, uint64_t id)
{
    if (partition >= r->h->partitions || !id || GET_RELAXED(r->partitions[partition].owner) != id)
        return SHMQ_STALE;
    SET_RELAXED(r->partitions[partition].owner, 0);
    changed(r);
    return SHMQ_OK;
}

int shmq_group_partition_commit(struct shmq_group_state *r, uint32_t partition, uint64_t id,
                                uint64_t offset, int64_t wall)
{
    struct shmq_group_partition *p = &r->partitions[partition];

    if (partition >= r->h->partitions || GET_RELAXED(p->owner) != id)
        return SHMQ_STALE;
    SET_RELAXED(p->committed_at, wall);
    SET_RELAXED(p->committed, offset);
    return SHMQ_OK;
}
