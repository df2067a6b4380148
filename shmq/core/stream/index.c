#include "stream/log.h"

#define NOWHERE UINT64_MAX

static struct shmq_index_entry *slot(const struct shmq_log *log, uint64_t granule)
{
    return &log->index[granule % log->index_count];
}

static void set_position(struct shmq_index_entry *entry, uint64_t position)
{
    __atomic_store_n(&entry->position, position, __ATOMIC_RELEASE);
    shmq_mark();
}

static void set(struct shmq_log *log, uint64_t granule, uint64_t position, uint64_t offset,
                int64_t seen)
{
    struct shmq_index_entry *entry = slot(log, granule);

    SET_ATOMIC(entry->offset, offset);
    SET_ATOMIC(entry->seen, seen);
    set_position(entry, position);
}

static inline uint64_t granule_behind(uint64_t position)
{
    return (position + SHMQ_INDEX_STEP - 1) / SHMQ_INDEX_STEP;
}

void shmq_log_index(struct shmq_log *log, uint64_t last_begin, uint64_t begin, uint64_t offset,
                    int64_t seen)
{
    uint64_t first = last_begin == begin ? granule_behind(begin) : last_begin / SHMQ_INDEX_STEP + 1;

    for (uint64_t k = first; k <= begin / SHMQ_INDEX_STEP; k++)
        set(log, k, begin, offset, seen);
}

/* A dead appender can only have written the index behind the last entry: index entries for earlier
 * positions stay valid, all others are removed. */
void shmq_log_trim_index(struct shmq_log *log)
{
    struct shmq_log_header *h = log->h;
    uint64_t live = shmq_log_oldest(log) / SHMQ_INDEX_STEP;
    uint64_t last = h->last_begin / SHMQ_INDEX_STEP + 1;
    uint64_t made = h->indexed;

    /* The position alone: a reader that has read it already must not find another offset beside it. */
    for (uint64_t k = last; k < live + log->index_count && k - last < log->index_count; k++)
        if (k % log->index_count < made)
            set_position(slot(log, k), NOWHERE);
}

struct aim {
    bool by_time;
    uint64_t offset;
    int64_t time;
};

/* Whether the index entry belongs to `granule`, and its entry is not behind the target: true up to
 * some granule, and false from there on. */
static bool leads(const struct shmq_log *log, uint64_t granule, uint64_t committed,
                  const struct aim *aim, uint64_t *position)
{
    const struct shmq_index_entry *entry = slot(log, granule);
    uint64_t at = __atomic_load_n(&entry->position, __ATOMIC_ACQUIRE);

    if (at < granule * SHMQ_INDEX_STEP || at >= committed)
        return false;
    if (aim->by_time ? GET_ATOMIC(entry->seen) >= aim->time
                     : GET_ATOMIC(entry->offset) > aim->offset)
        return false;
    *position = at;
    return true;
}

/* Behind the last entry the index may have no memory yet. */
static uint64_t search(const struct shmq_log *log, uint64_t oldest, uint64_t committed,
                       const struct aim *aim)
{
    uint64_t found = oldest, low = granule_behind(oldest), high = committed / SHMQ_INDEX_STEP + 1;

    while (oldest < committed && low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (leads(log, middle, committed, aim, &found))
            low = middle + 1;
        else
            high = middle;
    }
    return found;
}

uint64_t shmq_log_near_offset(const struct shmq_log *log, uint64_t oldest, uint64_t committed,
                              uint64_t offset)
{
    struct aim aim = {.offset = offset};

    return search(log, oldest, committed, &aim);
}

uint64_t shmq_log_near_time(const struct shmq_log *log, uint64_t oldest, uint64_t committed,
                            int64_t time)
{
    struct aim aim = {.by_time = true, .time = time};

    return search(log, oldest, committed, &aim);
}

uint64_t shmq_log_indexed_behind(const struct shmq_log *log, uint64_t position)
{
    uint64_t committed = shmq_log_committed(log), granule = granule_behind(position), at;

    if (position >= committed || granule * SHMQ_INDEX_STEP > log->h->last_begin)
        return committed;
    at = GET_ATOMIC(slot(log, granule)->position);
    return at >= position && at < committed ? at : committed;
}
