#include "queue/index.h"

#include "queue/segment.h"

#define LEAST_SIZE 64u

static struct shmq_dedupe *entry_of(struct shmq_queue *q, uint64_t counter)
{
    return &q->dedupe[counter & (q->h->dedupe_size - 1)];
}

static uint32_t *bucket_of(struct shmq_queue *q, uint64_t hash)
{
    return &q->dedupe_buckets[hash & (q->h->dedupe_size - 1)];
}

static bool sane(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;

    if (h->dedupe_size > q->geo.dedupe_max || (h->dedupe_size & (h->dedupe_size - 1)) ||
        h->dedupe_tail - h->dedupe_head > h->dedupe_size) {
        q->damaged = true;
        return false;
    }
    return true;
}

/* Chains run from newer to older counters. An entry that a bucket or another entry names belongs to
 * the ring only if its age says so. So an end needs no mark, and old links no clearing. */
int shmq_dedupe_find(struct shmq_queue *q, const uint64_t hash[2], int64_t now, uint64_t *seq)
{
    struct shmq_header *h = q->h;
    uint32_t age, last = 0, counter;

    if (!h->dedupe_size || !sane(q))
        return SHMQ_OK;
    counter = *bucket_of(q, hash[0]);
    for (;;) {
        struct shmq_dedupe *e;

        age = (uint32_t)h->dedupe_tail - counter;
        if (age <= last || age > h->dedupe_tail - h->dedupe_head)
            return SHMQ_OK;
        e = entry_of(q, counter);
        if (e->until <= now)
            return SHMQ_OK;
        if (e->hash[0] == hash[0] && e->hash[1] == hash[1]) {
            *seq = e->seq;
            return SHMQ_DUPLICATE;
        }
        last = age;
        counter = e->chain;
    }
}

static void link_entry(struct shmq_queue *q, uint64_t counter)
{
    struct shmq_dedupe *e = entry_of(q, counter);
    uint32_t *bucket = bucket_of(q, e->hash[0]);

    SET(e->chain, *bucket);
    SET(*bucket, (uint32_t)counter);
}

void shmq_dedupe_rebuild(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;

    if (!h->dedupe_size || !sane(q))
        return;
    for (uint32_t i = 0; i < h->dedupe_size; i++)
        q->dedupe_buckets[i] = 0;
    shmq_mark();
    for (uint64_t counter = h->dedupe_head; counter < h->dedupe_tail; counter++)
        link_entry(q, counter);
}

/* Doubles the ring. Entries whose place changes are copied into the new half; the old ones stay
 * until the size is changed, which is the store that counts. */
static int grow(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;
    uint32_t old = h->dedupe_size, size = old ? old * 2 : LEAST_SIZE;
    int status;

    if (size > shmq_most_ids(shmq_capacity(q)))
        return SHMQ_FULL;
    if ((status = shmq_back(q, q->geo.dedupe, (uint64_t)size * sizeof(struct shmq_dedupe))) ||
        (status = shmq_back(q, q->geo.dedupe_buckets, (uint64_t)size * sizeof(uint32_t))))
        return status;
    for (uint64_t c = h->dedupe_head; old && c < h->dedupe_tail; c++)
        if ((c & (size - 1)) != (c & (old - 1))) {
            q->dedupe[c & (size - 1)] = q->dedupe[c & (old - 1)];
            shmq_mark();
        }
    SET(h->dedupe_size, size);
    shmq_dedupe_rebuild(q);
    return SHMQ_OK;
}

int shmq_dedupe_reserve(struct shmq_queue *q, int64_t now)
{
    struct shmq_header *h = q->h;

    if (!sane(q))
        return SHMQ_DAMAGED;
    while (h->dedupe_head < h->dedupe_tail && entry_of(q, h->dedupe_head)->until <= now)
        SET(h->dedupe_head, h->dedupe_head + 1);
    if (h->dedupe_tail - h->dedupe_head < h->dedupe_size)
        return SHMQ_OK;
    return grow(q);
}

void shmq_dedupe_write(struct shmq_queue *q, const uint64_t hash[2], int64_t now, uint64_t seq)
{
    struct shmq_dedupe *e = entry_of(q, q->h->dedupe_tail);
    int64_t window = q->h->options.dedupe_window;

    SET(e->hash[0], hash[0]);
    SET(e->hash[1], hash[1]);
    SET(e->until, now + window);
    SET(e->seq, seq);
}

void shmq_dedupe_accept(struct shmq_queue *q)
{
    uint64_t counter = q->h->dedupe_tail;

    SET(q->h->dedupe_tail, counter + 1);
    link_entry(q, counter);
}

uint64_t shmq_dedupe_pending(struct shmq_queue *q)
{
    struct shmq_header *h = q->h;

    if (!h->dedupe_size || !sane(q) || h->dedupe_tail - h->dedupe_head == h->dedupe_size)
        return 0;
    return entry_of(q, h->dedupe_tail)->seq;
}
