/* An entry of a stream: one record, or a compressed batch, as stored in a partition's ring, in the
 * segment files and on the wire.
 *
 *   words u32 | crc u32 | type u8 | flags u8 | codec u8 | compression u8 | count u32 |
 *   offset u64 | timestamp i64 | key u32 | headers u32 | value u32 | raw u32 |
 *   [producer u64 | sequence u64] | value | key | headers | zeros to 8 | [seen i64]
 *
 * It is a record of a .dmsq file (record.h): all integers are little-endian, `words` counts the
 * eight-byte words that follow the crc, and the crc covers the stream's salt, `words` and what
 * follows it. In the ring of a stream that is not durable the crc is 0: entries leave the memory
 * only through the server, which computes it in its copy. `offset` is the offset of its first record; it takes `count` offsets: 1, or the
 * number of records compressed together. The uncompressed form of a batch, `raw` bytes, is entries,
 * too, whose offsets count from 0.
 *
 * `timestamp` is the record's own and may have any value. `seen` is the time by which an entry is
 * found and retained: the largest timestamp up to it, where each counts only up to the clock's time
 * at its append. It never decreases within a partition, and is stored only if it differs from
 * `timestamp`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMQ_R_ENTRY 10u          /* an addition to enum shmq_record_type               */
#define SHMQ_R_SKIP 11u           /* in a ring only: its bytes are left out              */
#define SHMQ_SKIP_HEAD 16u        /* bytes written of it                                 */
#define SHMQ_ENTRY_HEAD 48u       /* bytes before the producer or the value             */
#define SHMQ_ENTRY_PRODUCER 16u
#define SHMQ_ENTRY_SEEN 8u        /* bytes at its end, if present                       */

#define SHMQ_E_PRODUCED 0x01u     /* producer, sequence                                 */
#define SHMQ_E_KEYED 0x02u        /* has a key, possibly empty                          */
#define SHMQ_E_SEEN 0x04u         /* seen                                               */
#define SHMQ_E_FLAGS 0x07u

enum shmq_compression { SHMQ_PLAIN = 0, SHMQ_LZ4 = 1, SHMQ_ZSTD = 2 };

struct shmq_entry {
    uint8_t flags, codec, compression;
    uint32_t count;
    uint64_t offset;
    int64_t timestamp; /* ns since 1970 */
    int64_t seen;      /* `timestamp` unless stored; written only with its flag               */
    uint64_t producer, sequence;
    uint32_t key_bytes, headers_bytes, value_bytes, raw;
    const unsigned char *value, *key, *headers;
};

/* The size in bytes of the whole entry, a multiple of 8. */
static inline uint64_t shmq_entry_size(uint8_t flags, uint64_t value, uint64_t key,
                                       uint64_t headers)
{
    uint64_t fixed = SHMQ_ENTRY_HEAD + (flags & SHMQ_E_PRODUCED ? SHMQ_ENTRY_PRODUCER : 0);

    fixed += flags & SHMQ_E_SEEN ? SHMQ_ENTRY_SEEN : 0;
    return fixed + ((value + key + headers + 7) & ~7ull);
}

/* Writes the entry, with its crc, to `at`, a multiple of 8, which has room for it; returns the
 * place behind it. */
unsigned char *shmq_entry_write(unsigned char *at, uint32_t salt, const struct shmq_entry *e);

/* The same, but leaves the crc 0: not computed yet. If `value` is NULL, its bytes are there. */
unsigned char *shmq_entry_write_unsealed(unsigned char *at, const struct shmq_entry *e);

/* Writes the head of an entry that leads over `size` bytes, a multiple of 8 and 16 or more. */
void shmq_entry_write_skip(unsigned char *at, uint64_t size);

/* The same for a value alone, whose time is its timestamp. */
unsigned char *shmq_entry_write_value(unsigned char *at, uint64_t offset, int64_t timestamp,
                                      const void *value, uint32_t bytes);

/* Writes the crc of an entry that is otherwise complete. */
void shmq_entry_seal(unsigned char *at, uint32_t salt);

/* Writes the crc of those of the whole entries in `size` bytes whose crc is 0. Stops at bytes that
 * are no entry. */
void shmq_entry_seal_all(unsigned char *at, uint64_t size, uint32_t salt);

enum shmq_entry_read {
    SHMQ_E_OK = 0,
    SHMQ_E_END,    /* words of 0, or no bytes left                                      */
    SHMQ_E_OTHER,  /* a record of another type                                          */
    SHMQ_E_WRONG,  /* truncated, contradictory fields, or a wrong checksum                */
};

/* Reads the entry at `bytes`, of which `size` are readable. Sets `next` to its size, except for END
 * and WRONG. Pointers lead into `bytes`. Without `verify` the crc is not compared. */
enum shmq_entry_read shmq_entry_read(const unsigned char *bytes, uint64_t size, uint32_t salt,
                                     bool verify, struct shmq_entry *e, uint64_t *next);

/* The fields that a walk over entries needs. The bytes may change meanwhile, so the walker must not
 * trust them before it has verified that they did not. */
struct shmq_peeked_entry {
    uint64_t size;     /* 0: the rest of the ring is empty                              */
    uint64_t offset;
    int64_t seen;
    uint32_t count;
    uint8_t type, compression;
};

static inline uint64_t shmq_entry_word(const unsigned char *at)
{
    uint64_t word = __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Whether the head, all of whose bytes are readable, is that of one record which is not compressed;
 * the rest of it is not looked at. */
static inline bool shmq_entry_is_record(const unsigned char *at)
{
    return (shmq_entry_word(at + 8) & ~0xFFFF00ull) == (SHMQ_R_ENTRY | 1ull << 32);
}

/* The short path of shmq_entry_read, without a check of the crc, for a value alone: returns its
 * entry's size and sets `value` and its `bytes`; 0: it is not one, or there is none. */
static inline uint64_t shmq_entry_value_at(const unsigned char *at, uint64_t size,
                                           const unsigned char **value, uint32_t *bytes)
{
    uint64_t whole, sixth;

    if (size < SHMQ_ENTRY_HEAD)
        return 0;
    sixth = shmq_entry_word(at + 40);
    whole = 8 + (shmq_entry_word(at) & UINT32_MAX) * 8;
    if ((shmq_entry_word(at + 8) & ~0xFF0000ull) != (SHMQ_R_ENTRY | 1ull << 32) ||
        shmq_entry_word(at + 32) || sixth >> 32 || whole > size ||
        whole != shmq_entry_size(0, sixth, 0, 0))
        return 0;
    *value = at + SHMQ_ENTRY_HEAD;
    *bytes = (uint32_t)sixth;
    return whole;
}

/* `at` is a multiple of 8, and at least 8 of the `bytes` there are readable. */
static inline void shmq_entry_peek(const unsigned char *at, uint64_t bytes,
                                   struct shmq_peeked_entry *g)
{
    uint32_t words = (uint32_t)shmq_entry_word(at);
    uint64_t second;

    g->size = 0;
    g->type = 0;
    if (!words || bytes < SHMQ_ENTRY_HEAD)
        return;
    second = shmq_entry_word(at + 8);
    g->size = 8 + (uint64_t)words * 8;
    g->type = (uint8_t)second;
    g->compression = (uint8_t)(second >> 24);
    g->count = (uint32_t)(second >> 32);
    g->offset = shmq_entry_word(at + 16);
    g->seen = (int64_t)shmq_entry_word(at + 24);
    if (__builtin_expect((second >> 8 & SHMQ_E_SEEN) != 0, 0) && g->size <= bytes)
        g->seen = (int64_t)shmq_entry_word(at + g->size - SHMQ_ENTRY_SEEN);
}
