#include "file/columns.h"

#include <string.h>

static int64_t micros(int64_t ns) { return ns / 1000; }

static bool is_selected(const struct shmq_file_columns *e, const struct shmq_record *r)
{
    int64_t put_at = micros(r->put_at);

    return r->seq >= e->least_seq && r->seq <= e->most_seq && put_at >= e->least_put_at &&
           put_at <= e->most_put_at;
}

static bool fits(const struct shmq_file_columns *e, const struct shmq_record *r)
{
    uint64_t size = SHMQ_COLUMNS_HEAD + SHMQ_COLUMNS_PADDING +
                    (e->count + 1ull) * SHMQ_COLUMNS_ROW + e->body_bytes + r->body_bytes +
                    e->meta_bytes + r->meta_bytes;

    return size <= e->max_bytes;
}

/* The first message from `at` on whose number is selected: they are sorted. */
static uint64_t first_of(const struct shmq_replay *r, const struct shmq_file_columns *e,
                         uint64_t at, uint64_t end)
{
    while (at < end) {
        uint64_t middle = at + (end - at) / 2;

        if (r->live[middle].seq < e->least_seq)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

bool shmq_file_columns_count(const struct shmq_replay *r, struct shmq_file_columns *e, uint64_t *at,
                             uint64_t end)
{
    struct shmq_record record;

    for (*at = first_of(r, e, *at, end); *at < end; ++*at) {
        if (r->live[*at].seq > e->most_seq) {
            *at = end;
            return true;
        }
        shmq_replay_message(r, *at, &record);
        if (!is_selected(e, &record))
            continue;
        if (record.body_bytes > INT32_MAX || record.meta_bytes > INT32_MAX)
            return e->count != 0;
        if (e->count && !fits(e, &record))
            return true;
        e->count++;
        e->body_bytes += record.body_bytes;
        e->meta_bytes += record.meta_bytes;
    }
    return true;
}

static void row_of(const struct shmq_record *r, struct shmq_row *row)
{
    bool is_dead = r->flags & SHMQ_R_DEAD, is_delayed = r->flags & SHMQ_R_DELAYED;

    *row = (struct shmq_row){
        .sequence = r->seq,
        .put_at = micros(r->put_at),
        .visible_at = is_delayed ? micros(r->until) : 0,
        .expires = r->flags & SHMQ_R_TTL ? micros(r->expires) : 0,
        .dead_at = is_dead ? micros(r->dead_at) : 0,
        .deliveries = r->deliveries,
        .priority = r->priority,
        .state = is_dead      ? SHMQ_IS_DYING
                 : is_delayed ? SHMQ_IS_DELAYED
                              : SHMQ_IS_READY,
        .reason = is_dead ? r->reason & 3 : 0,
        .codec = r->codec,
        .body_bytes = r->body_bytes,
        .meta_bytes = r->meta_bytes,
    };
}

void shmq_file_columns_copy(const struct shmq_replay *r, const struct shmq_file_columns *e,
                            uint64_t at, uint64_t end, struct shmq_columns *c)
{
    struct shmq_record record;
    struct shmq_row row;
    unsigned char *body, *meta;

    for (at = first_of(r, e, at, end); at < end; at++) {
        shmq_replay_message(r, at, &record);
        if (!is_selected(e, &record) ||
            !shmq_columns_next(c, record.body_bytes, record.meta_bytes, &body, &meta))
            continue;
        row_of(&record, &row);
        memcpy(body, record.body, record.body_bytes);
        if (record.meta_bytes)
            memcpy(meta, record.meta, record.meta_bytes);
        shmq_columns_add(c, &row);
    }
}
