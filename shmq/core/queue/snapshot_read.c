#include "queue/snapshot_read.h"

#include <stdlib.h>
#include <string.h>

#include "queue/amend.h"
#include "queue/transition.h"

#define AHEAD 16u /* messages whose slots and bodies are prefetched                          */

/* Marks functions that read while others write, and then check whether they did. ThreadSanitizer
 * only sees the reading: it is made to ignore that, and the copying of bytes. */
#ifdef __SANITIZE_THREAD__
#define OPTIMISTIC __attribute__((no_sanitize_thread, noinline))
#else
#define OPTIMISTIC
#endif

/* The column `state` of a live message, or 0. An acknowledged one counts as free. */
static uint8_t row_state(uint64_t word)
{
    switch (shmq_state_of(word)) {
    case SHMQ_READY: return SHMQ_IS_READY;
    case SHMQ_DELAYED: return SHMQ_IS_DELAYED;
    case SHMQ_LEASED: return SHMQ_IS_LEASED;
    case SHMQ_DEAD:
    case SHMQ_MOVING: return SHMQ_IS_DYING;
    default: return 0;
    }
}

static uint64_t seq_of(const struct shmq_slot *s) { return GET_ATOMIC(s->seq); }

static bool holds(const struct shmq_slot *s, uint64_t seq)
{
    shmq_read_fence();
    return row_state(shmq_word(s)) && seq_of(s) == seq;
}

bool shmq_is_there(const struct shmq_queue *q, uint32_t at, uint64_t seq)
{
    const struct shmq_slot *s = shmq_slot_if_made(q, at);

    return s && row_state(shmq_word(s)) && holds(s, seq);
}

int64_t shmq_wall_offset(void)
{
    int64_t offset = shmq_wall() - shmq_now();

    return (offset + 500000) / 1000000 * 1000000;
}

/* The properties with the last error, valid as long as the word does not change; none while they
 * change. */
OPTIMISTIC static struct shmq_text last_error(const struct shmq_queue *q, const struct shmq_slot *s,
                                              uint64_t word)
{
    bool changing = shmq_state_of(word) == SHMQ_LEASED && word & SHMQ_F_CLOSED;
    const struct shmq_amended *amended = changing ? NULL : shmq_amended_of(q, s);

    return amended ? shmq_amended_text(q, amended) : (struct shmq_text){NULL, 0};
}

/* ---- choosing ---- */

void shmq_snapshot_read_begin(struct shmq_snapshot_read *e, uint64_t messages, uint64_t max_bytes,
                              uint64_t largest)
{
    uint64_t most = max_bytes / SHMQ_COLUMNS_ROW + 1;

    most = messages < most ? messages : most;
    *e = (struct shmq_snapshot_read){.most = (uint32_t)most,
                                     .max_bytes = max_bytes,
                                     .largest = largest < INT32_MAX ? largest : INT32_MAX};
    e->picks = malloc((most + 1) * sizeof *e->picks);
}

static uint64_t size_with(const struct shmq_snapshot_read *e, uint64_t body_bytes,
                          uint64_t meta_bytes)
{
    return SHMQ_COLUMNS_HEAD + SHMQ_COLUMNS_PADDING + (e->count + 1ull) * SHMQ_COLUMNS_ROW +
           e->body_bytes + body_bytes + e->meta_bytes + meta_bytes;
}

/* Chooses the slot's message. SHMQ_STALE: there is none; SHMQ_FULL: the block has no room for
 * it. */
OPTIMISTIC static int pick(struct shmq_queue *q, struct shmq_snapshot_read *e,
                           const struct shmq_slot *s)
{
    uint64_t word = shmq_word(s), seq = seq_of(s), body_bytes, meta_bytes;
    uint32_t block, units, amended;

    if (!row_state(word))
        return SHMQ_STALE;
    block = GET_ATOMIC(s->block);
    units = GET_ATOMIC(s->units);
    body_bytes = GET_ATOMIC(s->body_bytes);
    meta_bytes = GET_ATOMIC(s->meta_bytes);
    amended = last_error(q, s, word).bytes;
    if (!holds(s, seq))
        return SHMQ_STALE;
    if (block > q->geo.units || units > q->geo.units - block ||
        body_bytes + meta_bytes > (uint64_t)units * SHMQ_UNIT)
        return SHMQ_DAMAGED;
    meta_bytes = amended > meta_bytes ? amended : meta_bytes;
    if (body_bytes + meta_bytes > e->largest)
        return e->count ? SHMQ_FULL : SHMQ_TOO_LARGE;
    if (e->count == e->most || (e->count && size_with(e, body_bytes, meta_bytes) > e->max_bytes))
        return SHMQ_FULL;
    e->picks[e->count++] = (struct shmq_pick){seq, shmq_index_of(q, s), block,
                                              (uint32_t)meta_bytes};
    e->body_bytes += body_bytes;
    e->meta_bytes += meta_bytes;
    return SHMQ_OK;
}

int shmq_snapshot_read_slots(struct shmq_queue *q, struct shmq_snapshot_read *e, uint32_t *at,
                             uint32_t end)
{
    const struct shmq_slot *s;

    for (; *at < end && (s = shmq_slot_if_made(q, *at)); ++*at) {
        int status;

        shmq_fetch(s + AHEAD);
        status = pick(q, e, s);
        if (status == SHMQ_FULL)
            return SHMQ_OK;
        if (status != SHMQ_OK && status != SHMQ_STALE)
            return status;
    }
    return SHMQ_OK;
}

int shmq_snapshot_read_run(struct shmq_queue *q, struct shmq_snapshot_read *e,
                           const uint32_t *slots, const uint64_t *seqs, uint64_t *at, uint64_t end)
{
    for (; *at < end; ++*at) {
        const struct shmq_slot *s = shmq_slot_if_made(q, slots[*at]);
        int status = s && seq_of(s) == seqs[*at] ? pick(q, e, s) : SHMQ_STALE;

        if (status == SHMQ_OK && e->picks[e->count - 1].seq != seqs[*at]) {
            e->count--; /* it is gone, and another came */
            return SHMQ_STALE;
        }
        if (status == SHMQ_FULL)
            return SHMQ_OK;
        if (status != SHMQ_OK)
            return status;
    }
    return SHMQ_OK;
}

/* ---- copying ---- */

static int64_t micros(int64_t ns) { return ns / 1000; }

/* Everything but the bytes, according to the word: valid if the word does not change meanwhile. */
OPTIMISTIC static void describe(const struct shmq_slot *s, uint64_t word, int64_t wall,
                                struct shmq_row *row)
{
    uint8_t state = row_state(word);
    int64_t deadline = GET_ATOMIC(s->deadline);

    row->sequence = seq_of(s);
    row->put_at = micros(GET_ATOMIC(s->put_at) + wall);
    row->visible_at = state == SHMQ_IS_DELAYED ? micros(deadline + wall) : 0;
    row->lease_until = state == SHMQ_IS_LEASED ? micros(deadline + wall) : 0;
    row->expires = word & SHMQ_F_TTL ? micros(GET_ATOMIC(s->expires) + wall) : 0;
    row->deliveries = (int32_t)shmq_deliveries_with_this(word);
    row->priority = GET_ATOMIC(s->lane) & 0xF;
    row->codec = GET_ATOMIC(s->codec);
    row->state = state;
    row->reason = state == SHMQ_IS_DYING ? GET_ATOMIC(s->reason) & 3 : 0;
    row->dead_at = row->reason ? micros(GET_ATOMIC(s->dead_at)) : 0;
    row->body_bytes = GET_ATOMIC(s->body_bytes);
    row->meta_bytes = GET_ATOMIC(s->meta_bytes);
}

OPTIMISTIC static void copy_bytes(unsigned char *to, const unsigned char *from, size_t bytes)
{
#ifdef __SANITIZE_THREAD__
    for (size_t i = 0; i < bytes; i++)
        to[i] = ((const volatile unsigned char *)from)[i];
#else
    memcpy(to, from, bytes);
#endif
}

/* Copies one message. SHMQ_STALE: it is gone, or there is not enough room; SHMQ_BUSY: its last error
 * changed under us. */
static int copy_one(struct shmq_queue *q, const struct shmq_pick *p, int64_t wall,
                    struct shmq_columns *c)
{
    const struct shmq_slot *s = &q->slots[p->at];
    uint64_t word = shmq_word(s), again;
    const unsigned char *block, *from;
    unsigned char *body, *meta;
    struct shmq_text amended;
    struct shmq_row row;
    uint32_t units;

    for (;; word = again) {
        if (!row_state(word))
            return SHMQ_STALE;
        describe(s, word, wall, &row);
        units = GET_ATOMIC(s->units);
        amended = last_error(q, s, word);
        shmq_read_fence();
        again = shmq_word(s);
        if (again == word)
            break;
    }
    if (row.sequence != p->seq ||
        (uint64_t)row.body_bytes + row.meta_bytes > (uint64_t)units * SHMQ_UNIT ||
        units > q->geo.units - p->block)
        return SHMQ_STALE;
    block = q->arena + (uint64_t)p->block * SHMQ_UNIT;
    from = block + (uint64_t)units * SHMQ_UNIT - row.meta_bytes;
    if (amended.bytes &&
        amended.bytes <= p->meta_bytes) { /* an error that came since has no room */
        from = amended.at;
        row.meta_bytes = amended.bytes;
    }
    if (!shmq_columns_next(c, row.body_bytes, row.meta_bytes, &body, &meta))
        return SHMQ_STALE;
    copy_bytes(body, block, row.body_bytes);
    if (row.meta_bytes)
        copy_bytes(meta, from, row.meta_bytes);
    if (!holds(s, p->seq))
        return SHMQ_STALE;
    if (from == amended.at && shmq_word(s) != word)
        return SHMQ_BUSY;
    shmq_columns_add(c, &row);
    return SHMQ_OK;
}

void shmq_snapshot_read_copy(struct shmq_queue *q, const struct shmq_snapshot_read *e, int64_t wall,
                             struct shmq_columns *c)
{
    for (uint32_t i = 0; i < e->count; i++) {
        if (i + AHEAD < e->count) {
            const struct shmq_pick *p = &e->picks[i + AHEAD];
            const unsigned char *block = q->arena + (uint64_t)p->block * SHMQ_UNIT;

            shmq_fetch(&q->slots[p->at]);
            shmq_fetch(block);
            shmq_fetch(block + SHMQ_UNIT);
        }
        while (copy_one(q, &e->picks[i], wall, c) == SHMQ_BUSY)
            ;
    }
}

uint64_t shmq_search_room(uint32_t count)
{
    uint64_t room = 16;

    while (room < 2ull * count)
        room *= 2;
    return room;
}

/* The entry of `seq`, or the empty entry for it: linear probing, at most half full. */
static uint32_t *entry_of(const uint64_t *seqs, uint32_t *table, uint64_t room, uint64_t seq)
{
    uint64_t at = seq * 0x9E3779B97F4A7C15ull >> 20 & (room - 1);

    while (table[at] != SHMQ_NIL && seqs[table[at]] != seq)
        at = (at + 1) & (room - 1);
    return &table[at];
}

static bool is_live(uint64_t word)
{
    enum shmq_state state = shmq_state_of(word);

    return state == SHMQ_READY || state == SHMQ_DELAYED || state == SHMQ_LEASED;
}

void shmq_search(const struct shmq_queue *q, const uint64_t *seqs, uint32_t count, uint32_t *at,
                 uint32_t *table, uint64_t room)
{
    memset(table, 0xFF, room * sizeof *table);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *entry = entry_of(seqs, table, room, seqs[i]);

        at[i] = SHMQ_NIL;
        if (*entry == SHMQ_NIL)
            *entry = i;
    }
    for (uint32_t slot = 0; slot < GET_ATOMIC(q->h->slots_made) && slot < q->geo.slots_max;
         slot++) {
        const struct shmq_slot *s = &q->slots[slot];

        if (is_live(shmq_word(s))) {
            uint32_t i = *entry_of(seqs, table, room, GET_ATOMIC(s->seq));

            if (i != SHMQ_NIL)
                at[i] = slot;
        }
    }
}
