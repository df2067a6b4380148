#include "stream/columns.h"

#include <string.h>

#include "stream/entry.h"

/* Whether the entry's offsets are within the block's limits. */
static bool meant(const struct shmq_log_block *b, const struct shmq_entry *e)
{
    return e->offset + e->count > b->first && e->offset < b->end;
}

/* The next selected entry behind `at`; its records have the salt of their stream, which was
 * compared when they were read. */
static enum shmq_entry_read next(const struct shmq_log_block *b, uint64_t *at, struct shmq_entry *e)
{
    for (;;) {
        uint64_t size = 0;
        enum shmq_entry_read got = shmq_entry_read(b->bytes + *at, b->size - *at, 0, false, e,
                                                   &size);

        *at += size;
        if (got == SHMQ_E_OTHER || (got == SHMQ_E_OK && !meant(b, e)))
            continue;
        return got;
    }
}

static bool within_arrays(const struct shmq_log_sums *sums)
{
    return sums->count < INT32_MAX && sums->value_bytes <= INT32_MAX &&
           sums->key_bytes <= INT32_MAX && sums->header_bytes <= INT32_MAX;
}

bool shmq_log_measure(const struct shmq_log_block *b, struct shmq_log_sums *sums)
{
    struct shmq_entry e;
    enum shmq_entry_read got;
    uint64_t at = 0;

    *sums = (struct shmq_log_sums){0};
    while ((got = next(b, &at, &e)) == SHMQ_E_OK) {
        sums->count++;
        sums->keyed |= !!(e.flags & SHMQ_E_KEYED);
        sums->compressed |= e.compression != SHMQ_PLAIN;
        sums->value_bytes += e.value_bytes;
        sums->key_bytes += e.key_bytes;
        sums->header_bytes += e.headers_bytes;
        if (!within_arrays(sums))
            return false;
    }
    return got == SHMQ_E_END;
}

/* Appends an item to those before it, and stores its end. */
static void add(unsigned char *to, int32_t *ends, uint32_t i, const void *bytes, uint32_t size)
{
    if (size)
        memcpy(to + ends[i], bytes, size);
    ends[i + 1] = ends[i] + (int32_t)size;
}

/* Nanoseconds as microseconds, rounded down, also before 1970. */
static int64_t micros(int64_t ns) { return ns / 1000 - (ns % 1000 < 0); }

void shmq_log_fill(const struct shmq_log_block *b, const struct shmq_log_arrays *to)
{
    struct shmq_entry e;
    uint64_t at = 0;

    to->value_ends[0] = to->key_ends[0] = to->header_ends[0] = 0;
    for (uint32_t i = 0; next(b, &at, &e) == SHMQ_E_OK; i++) {
        to->offsets[i] = (int64_t)e.offset;
        to->timestamps[i] = micros(e.timestamp);
        to->codecs[i] = e.codec;
        add(to->values, to->value_ends, i, e.value, e.value_bytes);
        add(to->keys, to->key_ends, i, e.key, e.key_bytes);
        add(to->headers, to->header_ends, i, e.headers, e.headers_bytes);
        if (e.flags & SHMQ_E_KEYED)
            shmq_set_bit(to->has_key, i);
    }
}

/* ---- packing ---- */

static bool row(const struct shmq_log_rows *r, uint32_t i, struct shmq_entry *e)
{
    struct shmq_span value, key, headers;

    if (!shmq_text_at(&r->values, i, &value) || !shmq_text_at(&r->keys, i, &key) ||
        !shmq_text_at(&r->headers, i, &headers))
        return false;
    *e = (struct shmq_entry){.flags = key.at ? SHMQ_E_KEYED : 0,
                             .count = 1,
                             .codec = r->codecs ? r->codecs[i] : r->codec,
                             .value = value.at,
                             .value_bytes = value.bytes,
                             .key = key.at,
                             .key_bytes = key.bytes,
                             .headers = headers.at,
                             .headers_bytes = headers.bytes};
    return true;
}

uint64_t shmq_log_packed(const struct shmq_log_rows *r, uint32_t begin, uint32_t *end,
                         uint64_t most)
{
    struct shmq_entry e;
    uint64_t total = 0;
    uint32_t i = begin;

    for (; i < *end; i++) {
        uint64_t size;

        if (!row(r, i, &e))
            return 0;
        size = shmq_entry_size(e.flags, e.value_bytes, e.key_bytes, e.headers_bytes);
        if (i > begin && total + size > most)
            break;
        total += size;
    }
    *end = i;
    return total;
}

void shmq_log_pack(const struct shmq_log_rows *r, uint32_t begin, uint32_t end, unsigned char *to)
{
    struct shmq_entry e;

    for (uint32_t i = begin; i < end && row(r, i, &e); i++)
        to = shmq_entry_write(to, 0, &e);
}
