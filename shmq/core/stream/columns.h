/* Conversion between a partition's entries and Arrow's columns.
 *
 * A block is whole, consecutive entries in the form of a ring, a file or the wire: stream/entry.h.
 * It is read twice: to compute the sizes, and to fill arrays of these sizes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arrow.h"

/* A block; only entries with offsets from `first` up to `end` are converted. */
struct shmq_log_block {
    const unsigned char *bytes;
    size_t size;
    uint64_t first, end;
};

/* Their sizes. */
struct shmq_log_sums {
    uint32_t count;
    bool keyed;      /* some have a key                                                   */
    bool compressed; /* some are compressed batches, which have no columns                  */
    uint64_t value_bytes, key_bytes, header_bytes;
};

/* The arrays, of `count` items each; arrays of ends have one more, the first of which is 0, so
 * value i goes from ends[i] to ends[i + 1]. */
struct shmq_log_arrays {
    int64_t *offsets;
    int64_t *timestamps; /* microseconds since 1970                                        */
    unsigned char *codecs;
    int32_t *value_ends, *key_ends, *header_ends;
    unsigned char *values, *keys, *headers;
    unsigned char *has_key; /* one bit each, the lowest first; zeroed by the caller        */
};

/* False if the bytes are not entries, or exceed arrays with ends of 31 bits. */
bool shmq_log_measure(const struct shmq_log_block *b, struct shmq_log_sums *sums);

/* Fills arrays of exactly that size, for a measured block without compressed entries. */
void shmq_log_fill(const struct shmq_log_block *b, const struct shmq_log_arrays *to);

/* Records to be appended. */
struct shmq_log_rows {
    struct shmq_texts values, keys, headers;
    const unsigned char *codecs; /* one each; NULL: `codec` for all                        */
    uint8_t codec;
};

/* The size of the entries for rows from `begin` up to `*end`, which is lowered so that they take at
 * most `most` bytes, or are one row. 0 if the ends contradict their texts. */
uint64_t shmq_log_packed(const struct shmq_log_rows *r, uint32_t begin, uint32_t *end,
                         uint64_t most);

/* Writes that many bytes: a block without offsets and times, with a salt of 0, in the form that an
 * append takes. `to` is a multiple of 8. */
void shmq_log_pack(const struct shmq_log_rows *r, uint32_t begin, uint32_t end, unsigned char *to);
