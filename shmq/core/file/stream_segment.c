#include "file/stream_segment.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "file/record.h"
#include "stream/entry.h"

/* The fields of an entry's head; the time is the one by which it is found. */
struct head {
    uint64_t offset;
    int64_t time;
    uint32_t count;
};

/* The size of the whole record at `bytes`; 0: none was written there, or it is truncated. */
static inline size_t whole(const unsigned char *bytes, size_t size)
{
    uint32_t words = size < SHMQ_RECORD_HEAD ? 0 : shmq_load32_little(bytes);

    return words && words <= (size - SHMQ_RECORD_HEAD) / 8 ? SHMQ_RECORD_HEAD + 8ull * words : 0;
}

static inline bool sealed(const unsigned char *bytes, size_t size, uint32_t salt)
{
    uint32_t crc = shmq_crc32c(salt, bytes, 4);

    return shmq_crc32c(crc, bytes + SHMQ_RECORD_HEAD, size - SHMQ_RECORD_HEAD) ==
           shmq_load32_little(bytes + 4);
}

static inline bool is_entry(const unsigned char *bytes, size_t size)
{
    return size >= SHMQ_ENTRY_HEAD && bytes[SHMQ_RECORD_HEAD] == SHMQ_R_ENTRY;
}

/* `size` bytes of it, a head at least. */
static inline struct head head_of(const unsigned char *bytes, size_t size)
{
    const unsigned char *time = bytes[9] & SHMQ_E_SEEN ? bytes + size - SHMQ_ENTRY_SEEN
                                                       : bytes + 24;

    return (struct head){.count = shmq_load32_little(bytes + 12),
                         .offset = shmq_load64_little(bytes + 16),
                         .time = (int64_t)shmq_load64_little(time)};
}

/* Whether the entry can come next. */
static inline bool follows(const struct head *h, const struct shmq_stream_segment *w)
{
    return h->count && h->offset + h->count > h->offset && h->time >= w->time &&
           (h->offset == w->offset || !w->offset);
}

static inline bool stops(const struct head *h, const struct shmq_stream_segment *w, uint64_t start,
                         size_t bytes)
{
    if (h->offset + h->count > w->stop_offset && h->time >= w->stop_time)
        return true;
    if (!w->records)
        return false;
    return (w->most_bytes && w->at + bytes - start > w->most_bytes) ||
           (w->most && w->records + h->count > w->most);
}

/* Whether everything before the stop offset was passed: what follows may be torn. */
static inline bool arrived(const struct shmq_stream_segment *w)
{
    return w->stop_offset && w->offset >= w->stop_offset && w->stop_time == INT64_MIN;
}

/* For a record that is not an entry: whether it is allowed there, and entries may follow it. */
static enum shmq_stored_run pass(const unsigned char *bytes, size_t size, uint32_t salt,
                                 size_t *next)
{
    struct shmq_record r;

    switch (shmq_record_read(bytes, size, salt, true, &r, next)) {
    case SHMQ_READ_OK:
        return r.type == SHMQ_R_BATCH ? SHMQ_STREAM_SEGMENT_STOP
               : r.type == SHMQ_R_END ? SHMQ_STREAM_SEGMENT_END
                                      : SHMQ_STREAM_SEGMENT_DAMAGED;
    case SHMQ_READ_END: return SHMQ_STREAM_SEGMENT_END;
    default: return SHMQ_STREAM_SEGMENT_DAMAGED;
    }
}

/* What stands at w->at, `next` bytes of it: STOP, and `h` is an entry's head, or its count is 0
 * and it is passed over; else why it does not count. */
static enum shmq_stored_run piece_at(const unsigned char *bytes, size_t size,
                                     struct shmq_stream_segment_salts salts,
                                     const struct shmq_stream_segment *w, size_t *next,
                                     struct head *h)
{
    const unsigned char *at = bytes + w->at;

    *next = whole(at, size - w->at);
    if (!is_entry(at, *next)) {
        h->count = 0;
        return pass(at, size - w->at, salts.file, next);
    }
    *h = head_of(at, *next);
    if (!follows(h, w) || (w->verify && !sealed(at, *next, salts.entries)))
        return SHMQ_STREAM_SEGMENT_DAMAGED;
    return SHMQ_STREAM_SEGMENT_STOP;
}

enum shmq_stored_run shmq_stream_segment_walk(const unsigned char *bytes, size_t size,
                                              struct shmq_stream_segment_salts salts,
                                              struct shmq_stream_segment *w)
{
    const uint64_t start = w->at;

    w->records = w->bytes = 0;
    while (w->at < size) {
        enum shmq_stored_run how;
        struct head h;
        size_t next;

        if (arrived(w))
            return SHMQ_STREAM_SEGMENT_STOP;
        how = piece_at(bytes, size, salts, w, &next, &h);
        if (how != SHMQ_STREAM_SEGMENT_STOP)
            return how;
        if (!h.count) {
            w->at += next;
            continue;
        }
        if (stops(&h, w, start, next)) {
            w->offset = h.offset;
            w->time = h.time;
            return SHMQ_STREAM_SEGMENT_STOP;
        }
        w->at += next;
        w->offset = h.offset + h.count;
        w->time = h.time;
        w->records += h.count;
        w->bytes += next;
    }
    return w->at == size ? SHMQ_STREAM_SEGMENT_END : SHMQ_STREAM_SEGMENT_DAMAGED;
}

bool shmq_stream_segment_find(const unsigned char *bytes, size_t size,
                              struct shmq_stream_segment_salts salts, struct shmq_stream_segment *w)
{
    for (uint64_t at = w->at; at < size; at += 8) {
        size_t next = whole(bytes + at, size - at);
        struct head h;

        if (!is_entry(bytes + at, next))
            continue;
        h = head_of(bytes + at, next);
        if (!h.count || h.offset < w->offset || h.offset >= w->stop_offset ||
            h.offset + h.count <= h.offset || h.time < w->time ||
            !sealed(bytes + at, next, salts.entries))
            continue;
        w->at = at;
        w->offset = h.offset;
        w->time = h.time;
        return true;
    }
    return false;
}

/* Adds the entry to the run; false if it belongs to another. */
static bool joins(struct shmq_stream_segment_run *run, const unsigned char *entry,
                  const struct head *h)
{
    uint64_t producer = shmq_load64_little(entry + SHMQ_ENTRY_HEAD);
    uint64_t sequence = shmq_load64_little(entry + SHMQ_ENTRY_HEAD + 8);

    if (!run->count) {
        *run = (struct shmq_stream_segment_run){
            .producer = producer, .sequence = sequence, .offset = h->offset, .count = h->count};
        return true;
    }
    if (producer != run->producer || sequence != run->sequence + run->count ||
        h->offset != run->offset + run->count || h->count > UINT32_MAX - run->count)
        return false;
    run->count += h->count;
    return true;
}

static inline bool is_produced(const unsigned char *entry, size_t size)
{
    return size >= SHMQ_ENTRY_HEAD + SHMQ_ENTRY_PRODUCER && entry[9] & SHMQ_E_PRODUCED;
}

enum shmq_stored_run shmq_stream_segment_next_run(const unsigned char *bytes, size_t size,
                                                  struct shmq_stream_segment_salts salts,
                                                  struct shmq_stream_segment *w,
                                                  struct shmq_stream_segment_run *run)
{
    run->count = 0;
    while (w->at < size && w->offset < w->stop_offset) {
        enum shmq_stored_run how;
        struct head h;
        size_t next;

        how = piece_at(bytes, size, salts, w, &next, &h);
        if (how != SHMQ_STREAM_SEGMENT_STOP)
            return how;
        if (!h.count) {
            w->at += next;
            continue;
        }
        if (is_produced(bytes + w->at, next) && !joins(run, bytes + w->at, &h))
            return SHMQ_STREAM_SEGMENT_STOP;
        w->at += next;
        w->offset = h.offset + h.count;
        w->time = h.time;
    }
    return SHMQ_STREAM_SEGMENT_END;
}

size_t shmq_stream_segment_entries(const unsigned char *bytes, size_t size, unsigned char *to)
{
    size_t at = 0, begin = 0, made = 0;

    while (at < size) {
        size_t next = whole(bytes + at, size - at);

        if (!next)
            break;
        if (!is_entry(bytes + at, next)) {
            memcpy(to + made, bytes + begin, at - begin);
            made += at - begin;
            begin = at + next;
        }
        at += next;
    }
    memcpy(to + made, bytes + begin, at - begin);
    return made + at - begin;
}

/* ---- whole commits ---- */

/* The commit at `bytes`: whether it is whole. `r` is its BATCH, `next` bytes of that. */
static bool is_commit(const unsigned char *bytes, size_t size, uint32_t salt, struct shmq_record *r,
                      size_t *next)
{
    return shmq_record_read(bytes, size, salt, true, r, next) == SHMQ_READ_OK &&
           r->type == SHMQ_R_BATCH && r->bytes <= size - *next &&
           shmq_crc32c(0, bytes + *next, r->bytes) == r->crc;
}

/* Whether there is a whole commit with a number after `after` anywhere from `at` on. */
static bool has_later(const unsigned char *bytes, size_t size, size_t at, uint32_t salt,
                      uint64_t after)
{
    for (; size >= SHMQ_BATCH_BYTES && at <= size - SHMQ_BATCH_BYTES; at += 8) {
        struct shmq_record r;
        size_t next;

        if (bytes[at + SHMQ_RECORD_HEAD] == SHMQ_R_BATCH &&
            shmq_load32_little(bytes + at) == (SHMQ_BATCH_BYTES - SHMQ_RECORD_HEAD) / 8 &&
            is_commit(bytes + at, size - at, salt, &r, &next) && r.batch > after)
            return true;
    }
    return false;
}

/* Where the commit at `w->end` is damaged: at the record where a walk ends, too. */
static uint64_t damage_in(const unsigned char *bytes, size_t size,
                          struct shmq_stream_segment_salts salts,
                          const struct shmq_stream_segment_whole *w)
{
    struct shmq_stream_segment walk = {.at = w->end,
                                       .offset = w->offset,
                                       .time = w->time,
                                       .stop_offset = UINT64_MAX,
                                       .stop_time = INT64_MIN,
                                       .verify = true};
    struct shmq_record r;
    size_t next;

    if (shmq_record_read(bytes + w->end, size - w->end, salts.file, true, &r, &next) ==
            SHMQ_READ_OK &&
        r.type == SHMQ_R_BATCH)
        walk.stop_offset = r.last_seq;
    return shmq_stream_segment_walk(bytes, size, salts, &walk) == SHMQ_STREAM_SEGMENT_DAMAGED
               ? walk.at
               : w->end;
}

static enum shmq_stored_run ended(const unsigned char *bytes, size_t size,
                                  struct shmq_stream_segment_salts salts,
                                  struct shmq_stream_segment_whole *w)
{
    struct shmq_record r;
    size_t next;

    if (w->end >= size)
        return SHMQ_STREAM_SEGMENT_END;
    if (shmq_record_read(bytes + w->end, size - w->end, salts.file, true, &r, &next) ==
            SHMQ_READ_OK &&
        r.type == SHMQ_R_END) {
        w->closed = true;
        w->damage = w->end;
        return r.last_seq == w->offset && r.batches == w->batches && r.puts == w->records
                   ? SHMQ_STREAM_SEGMENT_END
                   : SHMQ_STREAM_SEGMENT_DAMAGED;
    }
    w->damage = damage_in(bytes, size, salts, w);
    if (has_later(bytes, size, w->end + 8, salts.file, w->offset))
        return SHMQ_STREAM_SEGMENT_DAMAGED;
    return size - w->end < 4 || shmq_load32_little(bytes + w->end) ? SHMQ_STREAM_SEGMENT_TORN
                                                                   : SHMQ_STREAM_SEGMENT_END;
}

enum shmq_stored_run shmq_stream_segment_check(const unsigned char *bytes, size_t size,
                                               size_t start, struct shmq_stream_segment_salts salts,
                                               struct shmq_stream_segment_whole *w)
{
    struct shmq_record r;
    size_t begin, next;

    if (!w->more) {
        w->end = start;
        w->records = w->batches = w->damage = 0;
        w->last_batch = w->offset;
        w->closed = false;
    }
    w->more = false;
    begin = w->end;
    while (w->end < size) {
        struct shmq_stream_segment walk = {.offset = w->offset,
                                           .time = w->time,
                                           .stop_offset = UINT64_MAX,
                                           .stop_time = INT64_MAX,
                                           .verify = true};

        if (w->most && w->end - begin >= w->most) {
            w->more = true;
            return SHMQ_STREAM_SEGMENT_STOP;
        }
        if (!is_commit(bytes + w->end, size - w->end, salts.file, &r, &next))
            break;
        if (r.batch != w->offset ||
            shmq_stream_segment_walk(bytes + w->end + next, r.bytes, salts, &walk) !=
                SHMQ_STREAM_SEGMENT_END ||
            walk.at != r.bytes || walk.offset != r.last_seq) {
            w->damage = w->end + next + walk.at;
            return SHMQ_STREAM_SEGMENT_DAMAGED;
        }
        w->offset = walk.offset;
        w->time = walk.time;
        w->records += walk.records;
        w->last_batch = r.batch;
        w->batches++;
        w->end += next + r.bytes;
    }
    return ended(bytes, size, salts, w);
}
