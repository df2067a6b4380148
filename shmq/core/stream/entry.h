/* An entry of a stream: one record, or a batch that was compressed together, as it lies in a
 * partition's ring, in the segment files and on the wire.
 *
 *   words u32 | crc u32 | type u8 | flags u8 | codec u8 | compression u8 | count u32 |
 *   offset u64 | timestamp i64 | key u32 | headers u32 | value u32 | raw u32 |
 *   [producer u64 | sequence u64] | value | key | headers | zeros to 8 | [seen i64]
 *
 * It is a record of a .dmsq file (record.h): all integers are little-endian, `words` counts
 * the eight bytes that follow the crc, and the crc is that of `words` and of what follows it,
 * after the stream's salt. `offset` is that of its first record, and it takes `count` of them:
 * 1, or as many as were compressed together. The uncompressed form of these, `raw` bytes, are
 * entries too, whose offsets count from 0.
 *
 * `timestamp` is the record's own, and may be any. `seen` is the time by which an entry is found
 * and kept: the largest timestamp up to it, of each as much as was not after the clock when it was
 * appended. It never falls within a partition, and stands there where it is not `timestamp`. */
#ifndef SHMQ_STREAM_ENTRY_H
#define SHMQ_STREAM_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMQ_R_ENTRY 10u          /* beside enum shmq_record_type                       */
#define SHMQ_ENTRY_HEAD 48u       /* bytes in front of the producer, or of the value    */
#define SHMQ_ENTRY_PRODUCER 16u
#define SHMQ_ENTRY_SEEN 8u        /* bytes at its end, if it has them                   */

#define SHMQ_E_PRODUCED 0x01u     /* producer, sequence                                 */
#define SHMQ_E_KEYED 0x02u        /* has a key, which may be of no bytes                */
#define SHMQ_E_SEEN 0x04u         /* seen                                               */
#define SHMQ_E_FLAGS 0x07u

enum shmq_compression { SHMQ_PLAIN = 0, SHMQ_LZ4 = 1, SHMQ_ZSTD = 2 };

struct shmq_entry {
    uint8_t flags, codec, compression;
    uint32_t count;
    uint64_t offset;
    int64_t timestamp; /* ns since 1970 */
    int64_t seen;      /* as `timestamp`, unless it stands there; written with its flag alone */
    uint64_t producer, sequence;
    uint32_t key_bytes, headers_bytes, value_bytes, raw;
    const unsigned char *value, *key, *headers;
};

/* Bytes of the whole entry, a multiple of 8. */
static inline uint64_t shmq_entry_size(uint8_t flags, uint64_t value, uint64_t key,
                                       uint64_t headers)
{
    uint64_t fixed = SHMQ_ENTRY_HEAD + (flags & SHMQ_E_PRODUCED ? SHMQ_ENTRY_PRODUCER : 0);

    fixed += flags & SHMQ_E_SEEN ? SHMQ_ENTRY_SEEN : 0;
    return fixed + ((value + key + headers + 7) & ~7ull);
}

/* Writes the entry to `at`, a multiple of 8, with room for its size, the crc included; returns
 * what is behind it. */
unsigned char *shmq_entry_write(unsigned char *at, uint32_t salt, const struct shmq_entry *e);

/* Writes the crc of an entry that is there whole. */
void shmq_entry_seal(unsigned char *at, uint32_t salt);

enum shmq_entry_read {
    SHMQ_E_OK = 0,
    SHMQ_E_END,    /* words of 0, or no bytes left                                      */
    SHMQ_E_OTHER,  /* a record of another type                                          */
    SHMQ_E_WRONG,  /* cut off, its fields contradict each other, or the checksum is wrong */
};

/* Reads the entry at `bytes`, of which `size` may be looked at. `next` becomes its size, but
 * for END and WRONG. Pointers lead into `bytes`. Without `verify` the crc is not compared. */
enum shmq_entry_read shmq_entry_read(const unsigned char *bytes, uint64_t size, uint32_t salt,
                                     bool verify, struct shmq_entry *e, uint64_t *next);

/* What a walk over entries needs: of bytes that may change meanwhile, so nothing is believed
 * before the walker has made sure that they had not. */
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

/* `at` is a multiple of 8, and so many bytes may be looked at: 8 at least. */
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

#endif
