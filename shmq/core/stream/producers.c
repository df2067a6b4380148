#include "stream/log.h"

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
