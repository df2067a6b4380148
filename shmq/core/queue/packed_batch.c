#include "queue/packed_batch.h"

#include <stddef.h>

static uint32_t little(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t shmq_packed_length(const struct shmq_packed *packed, uint32_t record)
{
    return packed->lengths ? little(packed->lengths + 4ull * record) : packed->size;
}

bool shmq_packed_read(const unsigned char *body, uint64_t bytes, struct shmq_packed *packed)
{
    uint64_t left, sum = 0;

    if (bytes < SHMQ_PACKED_TRAILER)
        return false;
    left = bytes - SHMQ_PACKED_TRAILER;
    packed->count = little(body + left);
    packed->size = little(body + left + 4);
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
