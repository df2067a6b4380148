/* Arrow's arrays of texts, as they come from outside:
 * https://arrow.apache.org/docs/format/Columnar.html. Each offset is checked before it is used. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the items of an array are present. */
struct shmq_bits {
    const unsigned char *at; /* one bit each, the lowest first; NULL: all are present       */
    uint64_t first;          /* the number of the first item's bit                          */
};

/* Texts or bytes: item i goes from ends[i] to ends[i + 1]. */
struct shmq_texts {
    const int32_t *ends; /* NULL: no item is present                                        */
    const unsigned char *bytes;
    uint64_t size;
    struct shmq_bits there;
};

/* Bytes at some place. */
struct shmq_span {
    const unsigned char *at; /* NULL: absent */
    uint32_t bytes;
};

static inline bool shmq_bit(const struct shmq_bits *bits, uint64_t i)
{
    i += bits->first;
    return !bits->at || (bits->at[i / 8] >> i % 8 & 1);
}

static inline void shmq_set_bit(unsigned char *bits, uint64_t i)
{
    bits[i / 8] |= (unsigned char)(1u << i % 8);
}

/* Whether the text with that number is within its bytes; sets `item` to it. */
static inline bool shmq_text_at(const struct shmq_texts *t, uint64_t i, struct shmq_span *item)
{
    int32_t begin, end;

    *item = (struct shmq_span){NULL, 0};
    if (!t->ends || !shmq_bit(&t->there, i))
        return true;
    begin = t->ends[i];
    end = t->ends[i + 1];
    if (begin < 0 || end < begin || (uint64_t)end > t->size)
        return false;
    item->at = t->bytes ? t->bytes + begin : (const unsigned char *)"";
    item->bytes = (uint32_t)(end - begin);
    return true;
}
