/* Integers in network byte order, with a bounded reader of them, and in the byte order of files.
 *
 * The reader never reads beyond its end: a read that would marks the reader as bad for good. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- integers ---- */

static inline uint16_t shmq_load16(const unsigned char *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof value);
    return __builtin_bswap16(value);
}

static inline uint32_t shmq_load32(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof value);
    return __builtin_bswap32(value);
}

static inline uint64_t shmq_load64(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return __builtin_bswap64(value);
}

static inline unsigned char *shmq_store16(unsigned char *at, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static inline unsigned char *shmq_store32(unsigned char *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static inline unsigned char *shmq_store64(unsigned char *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

/* ---- little-endian: the order of files ---- */

#define SHMQ_IS_LITTLE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

static inline uint16_t shmq_load16_little(const unsigned char *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof value);
    return SHMQ_IS_LITTLE ? value : __builtin_bswap16(value);
}

static inline uint32_t shmq_load32_little(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof value);
    return SHMQ_IS_LITTLE ? value : __builtin_bswap32(value);
}

static inline uint64_t shmq_load64_little(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return SHMQ_IS_LITTLE ? value : __builtin_bswap64(value);
}

static inline void shmq_store16_little(unsigned char *at, uint16_t value)
{
    value = SHMQ_IS_LITTLE ? value : __builtin_bswap16(value);
    memcpy(at, &value, sizeof value);
}

static inline void shmq_store32_little(unsigned char *at, uint32_t value)
{
    value = SHMQ_IS_LITTLE ? value : __builtin_bswap32(value);
    memcpy(at, &value, sizeof value);
}

static inline unsigned char *shmq_store64_little(unsigned char *at, uint64_t value)
{
    value = SHMQ_IS_LITTLE ? value : __builtin_bswap64(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

/* ---- the reader ---- */

struct shmq_reader {
    const unsigned char *at, *end;
    bool bad;
};

static inline size_t shmq_left(const struct shmq_reader *r) { return (size_t)(r->end - r->at); }

/* The next `size` bytes, or NULL. */
static inline const unsigned char *shmq_read_bytes(struct shmq_reader *r, size_t size)
{
    const unsigned char *at = r->at;

    if (r->bad || size > shmq_left(r)) {
        r->bad = true;
        return NULL;
    }
    r->at += size;
    return at;
}

static inline uint8_t shmq_read8(struct shmq_reader *r)
{
    const unsigned char *at = shmq_read_bytes(r, 1);

    return at ? *at : 0;
}

static inline uint16_t shmq_read16(struct shmq_reader *r)
{
    const unsigned char *at = shmq_read_bytes(r, 2);

    return at ? shmq_load16(at) : 0;
}

static inline uint32_t shmq_read32(struct shmq_reader *r)
{
    const unsigned char *at = shmq_read_bytes(r, 4);

    return at ? shmq_load32(at) : 0;
}

static inline uint64_t shmq_read64(struct shmq_reader *r)
{
    const unsigned char *at = shmq_read_bytes(r, 8);

    return at ? shmq_load64(at) : 0;
}
