/* A packed batch: many records in the body of one message.
 *
 * records, consecutive | lengths | count | size
 *
 * `count` and `size` are 32-bit little-endian. `size` is the size of every record, and then there
 * are no lengths; or it is SHMQ_PACKED_VARIES, and then `lengths` is `count` 32-bit little-endian
 * numbers, some of which may be 0. `size` is 0 only if `count` is, so the work of reading a batch
 * is bounded by its bytes. The records come first, so that an array begins at the beginning of a
 * block, on a cache line. */
#pragma once

#include "base/endian.h"

#define SHMQ_PACKED_VARIES UINT32_MAX
#define SHMQ_PACKED_TRAILER 8u /* bytes of count and size */

struct shmq_packed {
    uint64_t bytes;               /* of all records                    */
    const unsigned char *lengths; /* of each, or NULL; not aligned     */
    uint32_t count;
    uint32_t size;                /* of every record, if there are no lengths */
};

/* The length of a record. */
static inline uint32_t shmq_packed_length(const struct shmq_packed *packed, uint32_t record)
{
    return packed->lengths ? shmq_load32_little(packed->lengths + 4ull * record) : packed->size;
}

/* Reads the end of a body; false if it is not a packed batch. */
static inline bool shmq_packed_read(const unsigned char *body, uint64_t bytes,
                                    struct shmq_packed *packed)
{
    uint64_t left, sum = 0;

    if (bytes < SHMQ_PACKED_TRAILER)
        return false;
    left = bytes - SHMQ_PACKED_TRAILER;
    packed->count = shmq_load32_little(body + left);
    packed->size = shmq_load32_little(body + left + 4);
    packed->lengths = NULL;
    packed->bytes = left;
    if (packed->size != SHMQ_PACKED_VARIES)
        return (uint64_t)packed->count * packed->size == left && (packed->size || !packed->count);
    if (packed->count > left / 4)
        return false;
    packed->bytes = left - 4ull * packed->count;
    packed->lengths = body + packed->bytes;
    for (uint32_t i = 0; i < packed->count; i++)
        sum += shmq_packed_length(packed, i);
    return sum == packed->bytes;
}
