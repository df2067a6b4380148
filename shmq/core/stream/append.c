#include "stream/log.h"

/* What an append is about to write. */
struct plan {
    uint64_t begin, end;   /* positions: of the first entry, and behind the last        */
    uint64_t records, offset;
    int64_t now, seen;     /* the clock; what was seen before the item that comes next    */
    struct shmq_log_wrap wrap; /* before `end`                                          */
    struct shmq_log_place lent; /* is left out                                          */
    bool skipped;          /* an entry leads over it                                    */
    uint8_t flags;         /* of every entry                                            */
};

/* Computes the next item's timestamp and seen time; returns its flags. */
static inline uint8_t time_of(struct plan *plan, const struct shmq_log_piece *piece,
                              const struct shmq_log_item *item, int64_t *timestamp)
{
    int64_t given = item->timestamp ? item->timestamp : piece->timestamp;
    int64_t bounded = given && given < plan->now ? given : plan->now;

    plan->seen = bounded > plan->seen ? bounded : plan->seen;
    *timestamp = given ? given : plan->seen;
    return (uint8_t)(plan->flags | item->flags | (*timestamp == plan->seen ? 0 : SHMQ_E_SEEN));
}

static uint64_t size_of(const struct shmq_log_item *item, uint8_t flags)
{
    return shmq_entry_size(flags, item->value_bytes, item->key_bytes, item->headers_bytes);
}

/* Whether an entry of that size fits at `spot`, before the end of the ring. */
static inline bool fits(const struct shmq_log_spot *spot, uint64_t size)
{
    return size <= spot->end - spot->at;
}

/* The bytes to leave out before an entry of that size: up to the end of the ring, or over the place
 * that is lent. 0: it fits at `spot`. */
static inline uint64_t gap(const struct shmq_log_spot *spot, const struct shmq_log_place *lent,
                           uint64_t size)
{
    if (!fits(spot, size))
        return spot->end - spot->at;
    if (__builtin_expect(lent->bytes != 0, 0) && spot->at < lent->at + lent->bytes &&
        spot->at + size > lent->at)
        return lent->at + lent->bytes - spot->at;
    return 0;
}

/* Moves `spot` to where the next entry fits. */
static inline void wrap(const struct shmq_log *log, struct shmq_log_spot *spot, uint64_t size,
                        struct plan *plan)
{
    uint64_t left;

    if (shmq_log_is_wrap(log, spot))
        plan->wrap = (struct shmq_log_wrap){spot->position, 0};
    while ((left = gap(spot, &plan->lent, size))) {
        shmq_log_pass(log, spot, left);
        if (spot->at == spot->start)
            plan->wrap = (struct shmq_log_wrap){spot->position, left};
    }
}

/* The same while the entries are written: writes the pad or the skip. */
static inline void pass_gaps(const struct shmq_log *log, struct shmq_log_spot *spot, uint64_t size,
                             struct plan *plan)
{
    uint64_t left;

    while ((left = gap(spot, &plan->lent, size))) {
        unsigned char *at = log->ring + spot->at;

        if (left == spot->end - spot->at) {
            __atomic_store_n((uint64_t *)(void *)at, 0, __ATOMIC_RELAXED);
        } else {
            shmq_entry_write_skip(at, left);
            plan->skipped = true;
        }
        shmq_mark();
        shmq_log_pass(log, spot, left);
    }
}

static inline struct shmq_log_wrap wrap_of(const struct shmq_log_header *h)
{
    return (struct shmq_log_wrap){h->last_wrap, h->last_pad * 8ull};
}

/* Computes the places of all items; `timestamp` becomes that of the last one. */
static int plan_for(const struct shmq_log *log, const struct shmq_log_piece *piece,
                    struct plan *plan, int64_t *timestamp)
{
    struct shmq_log_spot spot = shmq_log_spot(log, shmq_log_committed(log));
    uint64_t ring = spot.end - spot.start, most = shmq_log_settings(log)->most_entry;

    plan->begin = spot.position;
    plan->wrap = wrap_of(log->h);
    plan->lent = shmq_log_lent(log);
    plan->skipped = false;
    plan->records = 0;
    plan->flags = piece->produced ? SHMQ_E_PRODUCED : 0;
    plan->now = shmq_wall();
    plan->seen = log->h->last_seen;
    for (uint32_t i = 0; i < piece->count; i++) {
        const struct shmq_log_item *item = &piece->items[i];
        uint64_t size = size_of(item, time_of(plan, piece, item, timestamp));

        if (size > most || size > ring / 2)
            return SHMQ_TOO_LARGE;
        wrap(log, &spot, size, plan);
        shmq_log_pass(log, &spot, size);
        plan->records += piece->items[i].count;
        if (spot.position - plan->begin > ring)
            return plan->lent.bytes ? SHMQ_FULL : SHMQ_TOO_LARGE;
    }
    plan->end = spot.position;
    return SHMQ_OK;
}

/* The record of a producer's earlier sequence number, while it is in the ring. */
static uint64_t look_back(const struct shmq_log *log, const struct shmq_log_piece *piece)
{
    uint64_t at = shmq_log_oldest(log), committed = shmq_log_committed(log), next;
    struct shmq_peeked_entry g;
    struct shmq_entry e;

    while (at < committed && shmq_log_step(log, &at, committed, &g)) {
        if (shmq_entry_read(shmq_log_byte(log, at), g.size, log->salt, false, &e, &next) ==
                SHMQ_E_OK &&
            e.flags & SHMQ_E_PRODUCED && e.producer == piece->producer &&
            piece->sequence >= e.sequence && piece->sequence - e.sequence < e.count)
            return e.offset + (piece->sequence - e.sequence);
        at += g.size;
    }
    return UINT64_MAX;
}

/* SHMQ_DUPLICATE: the whole piece was appended before. */
static int check_producer(struct shmq_log *log, const struct shmq_log_piece *piece,
                          struct shmq_log_appended *out)
{
    struct shmq_produced *known = shmq_log_producer(log, piece->producer);
    uint64_t expected = known ? known->sequence + known->count : piece->sequence;

    out->expected = expected;
    if (piece->sequence > expected && !piece->gaps && !known->restored)
        return SHMQ_GAP;
    if (piece->sequence >= expected)
        return SHMQ_OK;
    if (expected - piece->sequence < out->records)
        return SHMQ_GAP;
    out->duplicate = true;
    out->first = piece->sequence >= known->sequence
                     ? known->offset + (piece->sequence - known->sequence)
                     : look_back(log, piece);
    return SHMQ_DUPLICATE;
}

/* An item without a value has its bytes there already. */
static void write_one(struct shmq_log *log, const struct shmq_log_item *item,
                      const struct shmq_log_piece *piece, const struct plan *plan,
                      uint64_t sequence, uint8_t flags, int64_t timestamp, unsigned char *at)
{
    struct shmq_entry e = {
        .flags = flags,
        .codec = item->codec,
        .compression = item->compression,
        .count = item->count,
        .offset = plan->offset,
        .timestamp = timestamp,
        .seen = plan->seen,
        .producer = piece->producer,
        .sequence = sequence,
        .key_bytes = item->key_bytes,
        .headers_bytes = item->headers_bytes,
        .value_bytes = item->value_bytes,
        .raw = item->raw,
        .value = item->value,
        .key = item->key,
        .headers = item->headers,
    };

    if (log->durable && e.value)
        shmq_entry_write(at, log->salt, &e);
    else
        shmq_entry_write_unsealed(at, &e);
    if (log->durable && !e.value)
        shmq_entry_seal(at, log->salt);
    shmq_mark();
}

/* The cache lines for the next entries are in the caches of readers of the old entries. Prefetching
 * them early avoids waiting for one after the other. */
static inline void own_ahead(const struct shmq_log *log, uint64_t at, uint64_t most, uint64_t size)
{
    uint64_t end = at + SHMQ_AHEAD + size;

    for (at += SHMQ_AHEAD; at < end && at < most; at += SHMQ_LINE)
        shmq_fetch_to_write(log->ring + at);
}

/* Writes the entries behind `committed`, where no reader looks. */
static void write_all(struct shmq_log *log, const struct shmq_log_piece *piece, struct plan *plan,
                      uint64_t *last_begin)
{
    struct shmq_log_spot spot = shmq_log_spot(log, plan->begin);
    uint64_t last = log->h->last_begin, sequence = piece->sequence;

    plan->seen = log->h->last_seen;
    for (uint32_t i = 0; i < piece->count; i++) {
        const struct shmq_log_item *item = &piece->items[i];
        int64_t timestamp;
        uint8_t flags = time_of(plan, piece, item, &timestamp);
        uint64_t size = size_of(item, flags), begin;

        pass_gaps(log, &spot, size, plan);
        begin = spot.position;
        if (size <= SHMQ_AHEAD)
            own_ahead(log, spot.at, spot.end, size);
        write_one(log, item, piece, plan, sequence, flags, timestamp, log->ring + spot.at);
        if (begin / SHMQ_INDEX_STEP != last / SHMQ_INDEX_STEP || !begin)
            shmq_log_index(log, last, begin, plan->offset, plan->seen);
        plan->offset += item->count;
        sequence += item->count;
        last = begin;
        shmq_log_pass(log, &spot, size);
    }
    *last_begin = last;
}

/* The store that makes all items visible. The derived state follows; it is derived again if we die
 * in between. */
static void commit(struct shmq_log *log, const struct plan *plan, uint64_t last_begin)
{
    struct shmq_log_header *h = log->h;

    SET_RELEASE(h->committed, plan->end);
    SET(h->last_begin, last_begin);
    SET(h->last_pad, (uint32_t)(plan->wrap.pad / 8));
    SET(h->last_wrap, plan->wrap.position);
    SET_ATOMIC(h->last_seen, plan->seen);
    SET_RELEASE(h->next, plan->offset);
}

static int append(struct shmq_log *log, const struct shmq_log_piece *piece,
                  struct shmq_log_appended *out)
{
    struct shmq_log_header *h = log->h;
    struct plan plan;
    uint64_t last_begin;
    int status;

    out->duplicate = out->skipped = false;
    if ((status = plan_for(log, piece, &plan, &out->timestamp)))
        return status;
    plan.offset = out->first = GET_RELAXED(h->next);
    out->records = plan.records;
    if (piece->produced && (status = check_producer(log, piece, out)))
        return status == SHMQ_DUPLICATE ? SHMQ_OK : status;
    if (__builtin_expect(GET_RELAXED(h->sealed), 0))
        return SHMQ_SEALED;
    if (shmq_log_retention(log) && shmq_log_is_stale(log))
        shmq_log_expire(log);
    if (piece->produced && (status = shmq_log_back_producers(log)))
        return status;
    if ((status = shmq_log_make_room(log, plan.end, &plan.wrap)))
        return status;
    write_all(log, piece, &plan, &last_begin);
    commit(log, &plan, last_begin);
    out->skipped = plan.skipped;
    if (piece->produced)
        shmq_log_remember(log, piece->producer, piece->sequence, out->first,
                          (uint32_t)plan.records);
    SET_RELEASE(h->settled, plan.end);
    return SHMQ_OK;
}

/* ---- values alone ---- */

/* Writes one behind the other; returns where the last one begins. */
static uint64_t write_values(struct shmq_log *log, const struct shmq_log_value *values,
                             uint32_t count, const struct plan *plan)
{
    unsigned char *at = log->ring + log->tail.at;
    uint64_t position = plan->begin, last = log->h->last_begin, offset = plan->offset;

    for (uint32_t i = 0; i < count; i++) {
        unsigned char *end;

        if (values[i].size <= SHMQ_AHEAD)
            own_ahead(log, (uint64_t)(at - log->ring), log->tail.end,
                      SHMQ_ENTRY_HEAD + values[i].size);
        end = shmq_entry_write_value(at, offset, plan->seen, values[i].bytes, values[i].size);
        if (log->durable)
            shmq_entry_seal(at, log->salt);
        shmq_mark();
        if (position / SHMQ_INDEX_STEP != last / SHMQ_INDEX_STEP)
            shmq_log_index(log, last, position, offset, plan->seen);
        last = position;
        position += (uint64_t)(end - at);
        offset++;
        at = end;
    }
    return last;
}

bool shmq_log_append_values(struct shmq_log *log, const struct shmq_log_value *values,
                            uint32_t count, uint64_t size, struct shmq_log_appended *out)
{
    struct shmq_log_header *h = log->h;
    uint64_t begin = GET_RELAXED(h->committed), last;
    struct plan plan = {.begin = begin, .end = begin + size, .records = count};
    uint32_t made = GET_RELAXED(h->settings_made);

    if (log->tail.position != begin || log->tail_settings != made) {
        log->tail = shmq_log_spot(log, begin);
        log->tail_settings = made;
    }
    if (log->tail.at == log->tail.start || !fits(&log->tail, size) || GET_RELAXED(h->sealed) ||
        GET_RELAXED(h->loaned))
        return false;
    plan.wrap = wrap_of(h);
    if ((shmq_log_retention(log) && shmq_log_is_stale(log)) ||
        shmq_log_make_room(log, plan.end, &plan.wrap))
        return false;
    plan.offset = GET_RELAXED(h->next);
    plan.now = shmq_wall();
    plan.seen = h->last_seen > plan.now ? h->last_seen : plan.now;
    last = write_values(log, values, count, &plan);
    *out = (struct shmq_log_appended){
        .first = plan.offset, .records = count, .timestamp = plan.seen};
    plan.offset += count;
    commit(log, &plan, last);
    SET_RELEASE(h->settled, plan.end);
    shmq_log_pass(log, &log->tail, size);
    return true;
}

/* ---- a value in its place ---- */

/* Appends the single item at `position`, which is `committed`, or the beginning of the ring behind
 * the pad that follows it; there is room for the entry. Its value's bytes are in their place.
 * SHMQ_OK, SEALED, DAMAGED. */
static int append_at(struct shmq_log *log, uint64_t position, const struct shmq_log_piece *piece,
                     struct shmq_log_appended *out)
{
    struct shmq_log_header *h = log->h;
    struct shmq_log_spot spot = shmq_log_spot(log, shmq_log_committed(log));
    struct shmq_log_spot to = shmq_log_spot(log, position);
    uint64_t pad = position - spot.position, last = h->last_begin;
    struct plan plan = {.begin = position, .records = 1, .offset = GET_RELAXED(h->next)};
    uint8_t flags;

    if (GET_RELAXED(h->sealed))
        return SHMQ_SEALED;
    if (pad && pad != spot.end - spot.at)
        return SHMQ_DAMAGED;
    plan.now = shmq_wall();
    plan.seen = h->last_seen;
    flags = time_of(&plan, piece, piece->items, &out->timestamp);
    plan.end = position + size_of(piece->items, flags);
    plan.wrap = wrap_of(h);
    if (shmq_log_is_wrap(log, &to))
        plan.wrap = (struct shmq_log_wrap){position, pad};
    if (pad) {
        __atomic_store_n((uint64_t *)(void *)(log->ring + spot.at), 0, __ATOMIC_RELAXED);
        shmq_mark();
    }
    write_one(log, piece->items, piece, &plan, 0, flags, out->timestamp, log->ring + to.at);
    if (position / SHMQ_INDEX_STEP != last / SHMQ_INDEX_STEP || !position)
        shmq_log_index(log, last, position, plan.offset, plan.seen);
    /* The place may be larger than the entry. It outlives the commit in a process that dies, or keeps
     * a view: the next entry must begin right behind this one, with no gap. */
    SET_ATOMIC(log->holds[piece->loan->hold].tag, plan.end - position);
    out->first = plan.offset++;
    out->records = 1;
    out->duplicate = out->skipped = false;
    commit(log, &plan, position);
    SET_RELEASE(h->settled, plan.end);
    return SHMQ_OK;
}

static int append_copy(struct shmq_log *log, const struct shmq_log_piece *piece,
                       struct shmq_log_appended *out)
{
    struct shmq_log_item item = *piece->items;
    struct shmq_log_piece copy = *piece;

    item.value = piece->loan->value;
    copy.items = &item;
    copy.loan = NULL;
    return shmq_log_append(log, &copy, out);
}

/* Appends the item, whose value may be shorter than what was lent. If other entries have been
 * appended behind the place, or the ring has grown and goes on elsewhere, the bytes are copied. Without `keep` the loan ends if this succeeds.
 * SHMQ_OUT_OF_RANGE: it has ended before; else as shmq_log_append. */
static int append_lent(struct shmq_log *log, const struct shmq_log_piece *piece,
                       struct shmq_log_appended *out)
{
    uint64_t position;
    int status;

    if (!shmq_log_is_lent(log, piece->loan))
        return SHMQ_OUT_OF_RANGE;
    position = GET_RELAXED(log->holds[piece->loan->hold].position);
    if (shmq_log_committed(log) <= position &&
        shmq_log_spot(log, position).at == shmq_log_lent(log).at)
        status = append_at(log, position, piece, out);
    else
        status = append_copy(log, piece, out);
    if (!status && !piece->loan->keep)
        shmq_log_end_loan(log, piece->loan);
    return status;
}

/* ---- pieces ---- */

/* Skips the items that files have: a commit may end within a piece. Returns how many records. */
static uint64_t pass_restored(struct shmq_log *log, struct shmq_log_piece *piece)
{
    const struct shmq_produced *known = shmq_log_producer(log, piece->producer);
    uint64_t expected, first = piece->sequence;

    if (!known || !known->restored)
        return 0;
    expected = known->sequence + known->count;
    while (piece->count > 1 && piece->sequence < expected &&
           piece->items->count <= expected - piece->sequence) {
        piece->sequence += piece->items->count;
        piece->items++;
        piece->count--;
    }
    return piece->sequence - first;
}

int shmq_log_append(struct shmq_log *log, const struct shmq_log_piece *piece,
                    struct shmq_log_appended *out)
{
    struct shmq_log_piece rest = *piece;
    uint64_t passed = piece->produced ? pass_restored(log, &rest) : 0;
    int status;

    if (piece->loan)
        return piece->loan->value ? append_lent(log, piece, out) : shmq_log_lend(log, piece);
    status = append(log, &rest, out);
    if (!status && passed) {
        out->records += passed;
        if (out->first != UINT64_MAX)
            out->first -= passed;
    }
    return status;
}

/* ---- the last records of each producer ---- */

#define WINDOW 8u /* places of the table where a producer may be */

/* Fibonacci hashing: Knuth, The Art of Computer Programming, volume 3, 6.4. */
static struct shmq_produced *window_of(const struct shmq_log *log, uint64_t producer)
{
    uint64_t hash = producer * 0x9E3779B97F4A7C15ull >> 32;

    return &log->producers[hash % (SHMQ_PRODUCERS / WINDOW) * WINDOW];
}

struct shmq_produced *shmq_log_producer(struct shmq_log *log, uint64_t producer)
{
    struct shmq_produced *window = window_of(log, producer);

    if (!log->h->producers_backed)
        return NULL;
    for (uint32_t i = 0; i < WINDOW; i++)
        if (window[i].count && window[i].producer == producer)
            return &window[i];
    return NULL;
}

/* Its own entry, else a free one, else the one that was not used for longest. */
static struct shmq_produced *entry_for(struct shmq_log *log, uint64_t producer)
{
    struct shmq_produced *window = window_of(log, producer), *oldest = window;

    for (uint32_t i = 0; i < WINDOW; i++) {
        if (window[i].count && window[i].producer == producer)
            return &window[i];
        if (!window[i].count || (oldest->count && window[i].offset < oldest->offset))
            oldest = &window[i];
    }
    return oldest;
}

/* A death in here leaves an entry without a producer, or the same one again: the next holder walks
 * over the published entries once more. */
void shmq_log_remember(struct shmq_log *log, uint64_t producer, uint64_t sequence, uint64_t offset,
                       uint32_t count)
{
    struct shmq_produced *entry = entry_for(log, producer);

    SET(entry->count, 0);
    SET(entry->producer, producer);
    SET(entry->sequence, sequence);
    SET(entry->offset, offset);
    SET(entry->restored, 0);
    SET(entry->count, count);
}

void shmq_log_restore(struct shmq_log *log, uint64_t producer, uint64_t sequence, uint64_t offset,
                      uint32_t count)
{
    shmq_log_remember(log, producer, sequence, offset, count);
    SET(shmq_log_producer(log, producer)->restored, 1);
}
