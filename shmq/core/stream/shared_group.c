#include "stream/group_state.h"

#include "base/shared_memory.h"

static const int64_t FOREVER = INT64_MAX;

static enum shmq_held_state state_of(uint64_t word)
{
    return (enum shmq_held_state)(word & SHMQ_HELD_STATE);
}

static uint32_t deliveries_of(uint64_t word)
{
    return (uint32_t)(word >> SHMQ_HELD_DELIVERIES_SHIFT & SHMQ_DELIVERIES_MAX);
}

static uint64_t word_of(uint64_t serial, uint32_t deliveries, uint64_t flags)
{
    return serial << SHMQ_SERIAL_SHIFT | (uint64_t)deliveries << SHMQ_HELD_DELIVERIES_SHIFT | flags;
}

/* The same word in another state, not handed out. */
static uint64_t in_state(uint64_t word, enum shmq_held_state state)
{
    return word_of(word >> SHMQ_SERIAL_SHIFT, deliveries_of(word), state);
}

static uint64_t next_serial(struct shmq_group_state *r)
{
    SET(r->h->serial, r->h->serial >= SHMQ_SERIAL_MAX ? 1 : r->h->serial + 1);
    return r->h->serial;
}

static void due_by(struct shmq_group_state *r, int64_t at)
{
    if (at < r->h->next_due)
        SET(r->h->next_due, at);
}

static int64_t lease_end(const struct shmq_group_state *r, int64_t now)
{
    return now + r->h->options.lease;
}

/* The entry that the receipt names, if it is in that state; else NULL. */
static struct shmq_held *entry_of(struct shmq_group_state *r, uint64_t receipt,
                                  enum shmq_held_state state)
{
    uint64_t at = receipt & SHMQ_RECEIPT_SLOT, word;

    if (at >= r->capacity)
        return NULL;
    word = GET_RELAXED(r->held[at].word);
    return state_of(word) == state && word >> SHMQ_SERIAL_SHIFT == receipt >> SHMQ_SERIAL_SHIFT
               ? &r->held[at]
               : NULL;
}

/* The same for a leased entry whose lease has not run out. */
static struct shmq_held *leased_entry(struct shmq_group_state *r, uint64_t receipt, int64_t now)
{
    struct shmq_held *held = entry_of(r, receipt, SHMQ_HELD_LEASED);

    return held && now < held->deadline ? held : NULL;
}

static void set_free(struct shmq_group_state *r, struct shmq_held *held)
{
    uint32_t at = (uint32_t)(held - r->held);

    SET_RELAXED(held->word, in_state(GET_RELAXED(held->word), SHMQ_HELD_FREE));
    SET(r->h->live, r->h->live - 1);
    if (at < r->h->hint)
        SET(r->h->hint, at);
}

static void make_dead(struct shmq_group_state *r, struct shmq_held *held)
{
    if (r->h->options.dead_letter[0]) {
        SET_RELAXED(held->word, in_state(GET_RELAXED(held->word), SHMQ_HELD_DEAD));
        due_by(r, 0);
        return;
    }
    set_free(r, held);
    SET(r->h->dropped, r->h->dropped + 1);
}

/* Ends a lease: the record is leased again from `at` on, unless it was delivered too often. */
static void give_back(struct shmq_group_state *r, struct shmq_held *held, int64_t at)
{
    uint32_t most = r->h->options.max_deliveries;
    uint64_t word = GET_RELAXED(held->word);

    if (word & SHMQ_HELD_HANDED && most && deliveries_of(word) >= most) {
        make_dead(r, held);
        return;
    }
    SET(held->deadline, at);
    due_by(r, at);
    SET_RELAXED(held->word, in_state(word, SHMQ_HELD_RETURNED));
}

static void lease_entry(struct shmq_group_state *r, struct shmq_held *held, uint64_t id,
                        uint32_t deliveries, enum shmq_held_state state, int64_t now,
                        struct shmq_shared_lease *lease)
{
    uint64_t serial = next_serial(r);

    SET(held->owner, id);
    SET(held->deadline, lease_end(r, now));
    due_by(r, held->deadline);
    SET_RELAXED(held->word, word_of(serial, deliveries, state));
    lease->receipt = serial << SHMQ_SERIAL_SHIFT | (uint64_t)(held - r->held);
    lease->offset = held->offset;
    lease->partition = held->partition;
    lease->deliveries = deliveries;
}

static struct shmq_held *free_entry(struct shmq_group_state *r)
{
    for (uint32_t at = r->h->hint; at < r->capacity; at++)
        if (state_of(GET_RELAXED(r->held[at].word)) == SHMQ_HELD_FREE) {
            SET(r->h->hint, at);
            return &r->held[at];
        }
    return NULL;
}

/* ---- leasing ---- */

void shmq_shared_group_begin(struct shmq_group_state *r, uint32_t partition, uint64_t offset)
{
    if (partition < r->h->partitions &&
        GET_RELAXED(r->partitions[partition].next) == SHMQ_NO_OFFSET)
        SET_RELAXED(r->partitions[partition].next, offset);
}

/* The next offset to lease in the partition: not before the stream's earliest record. */
static uint64_t first_of(struct shmq_group_state *r, struct shmq_group_partition *p,
                         uint64_t earliest)
{
    uint64_t next = GET_RELAXED(p->next);

    if (next >= earliest)
        return next;
    SET(r->h->skipped, r->h->skipped + earliest - next);
    SET_RELAXED(p->next, earliest);
    return earliest;
}

int shmq_shared_group_lease(struct shmq_group_state *r, uint64_t id, uint32_t partition,
                            uint64_t earliest, uint64_t latest, uint32_t limit, int64_t now,
                            struct shmq_shared_lease *lease, uint32_t *count)
{
    struct shmq_group_partition *p = &r->partitions[partition];
    uint64_t offset;

    *count = 0;
    if (partition >= r->h->partitions)
        return SHMQ_STALE;
    for (offset = first_of(r, p, earliest); offset < latest && *count < limit; offset++) {
        struct shmq_held *held = r->h->live < r->capacity ? free_entry(r) : NULL;

        if (!held)
            return *count ? SHMQ_OK : SHMQ_FULL;
        SET(held->offset, offset);
        SET(held->partition, partition);
        lease_entry(r, held, id, 0, SHMQ_HELD_LEASED, now, &lease[(*count)++]);
        SET(r->h->live, r->h->live + 1);
        SET_RELAXED(p->next, offset + 1);
    }
    return SHMQ_OK;
}

/* Applies the entry's due transitions; returns when it is due next. */
static int64_t promote(struct shmq_group_state *r, struct shmq_held *held, int64_t now)
{
    enum shmq_held_state state = state_of(GET_RELAXED(held->word));

    if (state == SHMQ_HELD_LEASED && held->deadline <= now)
        give_back(r, held, now);
    else if (state == SHMQ_HELD_MOVING && held->deadline <= now)
        make_dead(r, held);
    switch (state_of(GET_RELAXED(held->word))) {
    case SHMQ_HELD_LEASED:
    case SHMQ_HELD_MOVING:
    case SHMQ_HELD_RETURNED: return held->deadline;
    case SHMQ_HELD_DEAD: return 0;
    default: return FOREVER;
    }
}

uint32_t shmq_shared_group_lease_returned(struct shmq_group_state *r, uint64_t id, uint32_t limit,
                                          int64_t now, struct shmq_shared_lease *lease)
{
    int64_t next = FOREVER;
    uint32_t count = 0;

    if (now < r->h->next_due)
        return 0;
    SET(r->h->next_due, 0); /* until the scan is over */
    for (uint32_t at = 0; at < r->capacity; at++) {
        struct shmq_held *held = &r->held[at];
        int64_t due = promote(r, held, now);
        uint64_t word = GET_RELAXED(held->word);

        if (count < limit && state_of(word) == SHMQ_HELD_RETURNED && due <= now) {
            lease_entry(r, held, id, deliveries_of(word), SHMQ_HELD_LEASED, now, &lease[count++]);
            due = held->deadline;
        }
        if (due < next)
            next = due;
    }
    SET(r->h->next_due, next);
    return count;
}

/* ---- settling ---- */

int shmq_shared_group_hand(struct shmq_group_state *r, uint64_t receipt, int64_t now)
{
    struct shmq_held *held = leased_entry(r, receipt, now);
    uint64_t word;
    uint32_t deliveries;

    if (!held)
        return SHMQ_STALE;
    word = GET_RELAXED(held->word);
    if (word & SHMQ_HELD_HANDED)
        return SHMQ_OK;
    deliveries = deliveries_of(word);
    SET_RELAXED(held->word, word_of(word >> SHMQ_SERIAL_SHIFT,
                                    deliveries < SHMQ_DELIVERIES_MAX ? deliveries + 1 : deliveries,
                                    SHMQ_HELD_LEASED | SHMQ_HELD_HANDED));
    return SHMQ_OK;
}

int shmq_shared_group_ack(struct shmq_group_state *r, uint64_t receipt, int64_t now)
{
    struct shmq_held *held = leased_entry(r, receipt, now);

    if (!held)
        return SHMQ_STALE;
    set_free(r, held);
    SET(r->h->acked, r->h->acked + 1);
    return SHMQ_OK;
}

int shmq_shared_group_nack(struct shmq_group_state *r, uint64_t receipt, int64_t delay, int64_t now)
{
    struct shmq_held *held = leased_entry(r, receipt, now);

    if (!held)
        return SHMQ_STALE;
    give_back(r, held, now + delay);
    return SHMQ_OK;
}

int shmq_shared_group_return(struct shmq_group_state *r, uint64_t receipt, int64_t delay,
                             int64_t now)
{
    struct shmq_held *held = leased_entry(r, receipt, now);
    uint64_t word;
    uint32_t deliveries;

    if (!held)
        return SHMQ_STALE;
    word = GET_RELAXED(held->word);
    deliveries = deliveries_of(word);
    if (word & SHMQ_HELD_HANDED && deliveries)
        SET_RELAXED(held->word,
                    word_of(word >> SHMQ_SERIAL_SHIFT, deliveries - 1, SHMQ_HELD_LEASED));
    give_back(r, held, now + delay);
    return SHMQ_OK;
}

int shmq_shared_group_reject(struct shmq_group_state *r, uint64_t receipt, int64_t now)
{
    struct shmq_held *held = leased_entry(r, receipt, now);

    if (!held)
        return SHMQ_STALE;
    make_dead(r, held);
    return SHMQ_OK;
}

int shmq_shared_group_extend(struct shmq_group_state *r, uint64_t receipt, int64_t ns, int64_t now)
{
    struct shmq_held *held = leased_entry(r, receipt, now);

    if (!held)
        return SHMQ_STALE;
    SET(held->deadline, ns ? now + ns : lease_end(r, now));
    due_by(r, held->deadline);
    return SHMQ_OK;
}

int shmq_shared_group_take_dead(struct shmq_group_state *r, uint64_t id, int64_t now,
                                struct shmq_shared_lease *lease)
{
    for (uint32_t at = 0; r->h->next_due <= now && at < r->capacity; at++) {
        struct shmq_held *held = &r->held[at];
        uint64_t word = GET_RELAXED(held->word);

        if (state_of(word) != SHMQ_HELD_DEAD)
            continue;
        lease_entry(r, held, id, deliveries_of(word), SHMQ_HELD_MOVING, now, lease);
        return SHMQ_OK;
    }
    return SHMQ_EMPTY;
}

int shmq_shared_group_moved(struct shmq_group_state *r, uint64_t receipt, int there)
{
    struct shmq_held *held = entry_of(r, receipt, SHMQ_HELD_MOVING);

    if (!held)
        return SHMQ_STALE;
    set_free(r, held);
    if (there)
        SET(r->h->dead_lettered, r->h->dead_lettered + 1);
    else
        SET(r->h->dropped, r->h->dropped + 1);
    return SHMQ_OK;
}

int shmq_shared_group_lost(struct shmq_group_state *r, uint64_t receipt)
{
    struct shmq_held *held = entry_of(r, receipt, SHMQ_HELD_LEASED);

    held = held ? held : entry_of(r, receipt, SHMQ_HELD_MOVING);
    if (!held)
        return SHMQ_STALE;
    set_free(r, held);
    SET(r->h->skipped, r->h->skipped + 1);
    return SHMQ_OK;
}

/* ---- deaths ---- */

void shmq_shared_group_orphan(struct shmq_group_state *r, uint64_t id, int64_t now)
{
    for (uint32_t at = 0; at < r->capacity; at++) {
        struct shmq_held *held = &r->held[at];

        if (held->owner != id)
            continue;
        if (state_of(GET_RELAXED(held->word)) == SHMQ_HELD_LEASED)
            give_back(r, held, now);
        else if (state_of(GET_RELAXED(held->word)) == SHMQ_HELD_MOVING)
            make_dead(r, held);
    }
}

int64_t shmq_shared_group_due(const struct shmq_group_state *r) { return r->h->next_due; }

void shmq_shared_group_lows(const struct shmq_group_state *r, uint64_t *lows)
{
    for (uint32_t p = 0; p < r->h->partitions; p++)
        lows[p] = GET_RELAXED(r->partitions[p].next);
    for (uint32_t at = 0; at < r->capacity; at++) {
        const struct shmq_held *held = &r->held[at];

        if (state_of(GET_RELAXED(held->word)) != SHMQ_HELD_FREE &&
            held->partition < r->h->partitions && held->offset < lows[held->partition])
            lows[held->partition] = held->offset;
    }
}

/* Whether the entry's holder is gone without having returned it. */
static bool is_orphan(const struct shmq_group_state *r, const struct shmq_held *held)
{
    enum shmq_held_state state = state_of(GET_RELAXED(held->word));

    if (state != SHMQ_HELD_LEASED && state != SHMQ_HELD_MOVING)
        return false;
    for (uint32_t i = 0; i < SHMQ_MAX_MEMBERS; i++)
        if (GET_RELAXED(r->members[i].id) == held->owner)
            return false;
    return true;
}

/* Held records were leased, even if the dead holder did not get to store `next`. */
void shmq_shared_group_recover(struct shmq_group_state *r)
{
    uint32_t live = 0;

    for (uint32_t at = 0; at < r->capacity; at++) {
        struct shmq_held *held = &r->held[at];

        if (state_of(GET_RELAXED(held->word)) == SHMQ_HELD_FREE)
            continue;
        live++;
        if (is_orphan(r, held))
            SET(held->deadline, 0); /* as if its lease had ended */
        if (held->partition < SHMQ_MAX_GROUP_PARTITIONS &&
            GET_RELAXED(r->partitions[held->partition].next) <= held->offset)
            SET_RELAXED(r->partitions[held->partition].next, held->offset + 1);
    }
    SET(r->h->live, live);
    SET(r->h->hint, 0);
    SET(r->h->next_due, 0);
}
