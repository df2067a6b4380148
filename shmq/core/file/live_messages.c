#include "file/live_messages.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 1024u

_Static_assert(sizeof(struct shmq_live) == 32, "two live messages to a cache line");

/* ---- an array in order ---- */

/* The entry of `seq`, which may be a gap; NULL if there is none. As numbers do not repeat, it is no
 * further from the first one than their difference, and just there if none is missing between. */
static struct shmq_live *in_order(const struct shmq_live_messages *m, uint64_t seq)
{
    uint64_t from = 0, to = m->used;

    if (!to || seq < m->at[0].seq || seq > m->at[to - 1].seq)
        return NULL;
    if (seq - m->at[0].seq < to)
        to = seq - m->at[0].seq + 1;
    if (m->at[to - 1].seq == seq)
        return &m->at[to - 1];
    while (from < to) {
        uint64_t middle = from + (to - from) / 2;

        if (m->at[middle].seq < seq)
            from = middle + 1;
        else
            to = middle;
    }
    return from < m->used && m->at[from].seq == seq ? &m->at[from] : NULL;
}

static void close_gaps(struct shmq_live_messages *m)
{
    uint64_t kept = 0;

    for (uint64_t i = 0; i < m->used; i++)
        if (m->at[i].size)
            m->at[kept++] = m->at[i];
    m->used = kept;
}

/* Whether there is room for one more entry; the gaps are never more than the messages for long. */
static bool extend(struct shmq_live_messages *m)
{
    uint64_t room = m->room ? 2 * m->room : LEAST_ROOM;
    struct shmq_live *at;

    if (m->used < m->room)
        return true;
    if (m->count < m->used / 2) {
        close_gaps(m);
        return true;
    }
    at = realloc(m->at, room * sizeof *at);
    if (!at)
        return false;
    m->at = at;
    m->room = room;
    return true;
}

/* ---- a hash table: linear probing, kept at most half full ---- */

/* Eight numbers in a row stand side by side: files have them in order, for the most part, and
 * an entry of the table that is not in the cache costs more than the whole record. */
static inline uint64_t home_of(const struct shmq_live_messages *m, uint64_t seq)
{
    return ((seq >> 3) * 0x9E3779B97F4A7C15ull >> 20 << 3 | (seq & 7)) & (m->room - 1);
}

/* The entry of `seq`, or the free one where it belongs. */
static struct shmq_live *entry_of(const struct shmq_live_messages *m, uint64_t seq)
{
    uint64_t at = home_of(m, seq);

    while (m->at[at].seq && m->at[at].seq != seq)
        at = (at + 1) & (m->room - 1);
    return &m->at[at];
}

/* Whether there is a table with room for one more message. */
static bool make_table(struct shmq_live_messages *m)
{
    struct shmq_live_messages table = {.room = LEAST_ROOM, .count = m->count, .hashed = true};

    if (m->hashed && 2 * (m->count + 1) <= m->room)
        return true;
    while (2 * (m->count + 1) > table.room)
        table.room *= 2;
    table.used = table.room;
    table.at = calloc(table.room, sizeof *table.at);
    if (!table.at)
        return false;
    for (uint64_t i = 0; i < m->used; i++)
        if (m->at[i].size)
            *entry_of(&table, m->at[i].seq) = m->at[i];
    free(m->at);
    *m = table;
    return true;
}

/* Closes the gap, so that a probe past it still finds the entries behind. */
static void take_out(struct shmq_live_messages *m, struct shmq_live *entry)
{
    uint64_t mask = m->room - 1, gap = (uint64_t)(entry - m->at);

    for (uint64_t at = (gap + 1) & mask; m->at[at].seq; at = (at + 1) & mask) {
        uint64_t home = home_of(m, m->at[at].seq);

        if (((at - home) & mask) >= ((at - gap) & mask)) {
            m->at[gap] = m->at[at];
            gap = at;
        }
    }
    m->at[gap].seq = m->at[gap].size = 0;
}

/* ---- both ---- */

struct shmq_live *shmq_live_find(const struct shmq_live_messages *m, uint64_t seq)
{
    struct shmq_live *entry = NULL;

    if (m->count)
        entry = m->hashed ? entry_of(m, seq) : in_order(m, seq);
    return entry && entry->size ? entry : NULL;
}

struct shmq_live *shmq_live_add(struct shmq_live_messages *m, uint64_t seq)
{
    struct shmq_live *entry;

    if (!m->hashed && (!m->used || seq > m->at[m->used - 1].seq)) {
        if (!extend(m))
            return NULL;
        entry = &m->at[m->used++];
        entry->size = 0;
    } else if (m->hashed || !(entry = in_order(m, seq))) {
        if (!make_table(m))
            return NULL;
        entry = entry_of(m, seq);
    }
    entry->seq = seq;
    m->count += !entry->size;
    return entry;
}

void shmq_live_remove(struct shmq_live_messages *m, struct shmq_live *entry)
{
    if (m->hashed)
        take_out(m, entry);
    else
        entry->size = 0;
    m->count--;
}

static int by_seq(const void *one, const void *other)
{
    uint64_t a = ((const struct shmq_live *)one)->seq, b = ((const struct shmq_live *)other)->seq;

    return (a > b) - (a < b);
}

void shmq_live_sort(struct shmq_live_messages *m)
{
    if (m->count < m->used)
        close_gaps(m);
    if (m->hashed && m->used)
        qsort(m->at, m->used, sizeof *m->at, by_seq);
}

void shmq_live_free(struct shmq_live_messages *m)
{
    free(m->at);
    memset(m, 0, sizeof *m);
}
