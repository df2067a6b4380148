#include "stream/entry.h"

#include "base/crc32c.h"
#include "base/endian.h"

#define LARGE 512u /* bytes of a value that is summed while it is copied */

/* Readers of a ring may read the bytes while they are written here, and then discard them, so the
 * stores need only be atomic. */
static inline unsigned char *store(unsigned char *at, uint64_t word)
{
    word = SHMQ_IS_LITTLE ? word : __builtin_bswap64(word);
    __atomic_store_n((uint64_t *)(void *)at, word, __ATOMIC_RELAXED);
    return at + 8;
}

#ifdef __SANITIZE_THREAD__
static unsigned char *put(unsigned char *at, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        __atomic_store_n(at + i, ((const unsigned char *)bytes)[i], __ATOMIC_RELAXED);
    return at + size;
}
#else
#define SHORT 256u /* bytes that are copied here rather than by a call */

/* Copies in steps of 8 or 16 bytes; there are at least that many, and the last step may overlap. */
#define COPY_BY(step, at, from, size)                                     \
    do {                                                                  \
        for (size_t i_ = 0; i_ + (step) < (size); i_ += (step))           \
            memcpy((at) + i_, (from) + i_, (step));                       \
        memcpy((at) + (size) - (step), (from) + (size) - (step), (step)); \
    } while (0)

static inline unsigned char *put(unsigned char *at, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;

    if (size > SHORT)
        memcpy(at, from, size);
    else if (size >= 16)
        COPY_BY(16, at, from, size);
    else if (size >= 8)
        COPY_BY(8, at, from, size);
    else
        for (size_t i = 0; i < size; i++)
            at[i] = from[i];
    return at + size;
}
#endif

static inline uint32_t low(uint64_t word) { return (uint32_t)word; }
static inline uint32_t high(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint64_t pair(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }

/* All but the first word and what is carried; returns where that begins. */
static unsigned char *put_head(unsigned char *at, const struct shmq_entry *e)
{
    at = store(at + 8, pair(SHMQ_R_ENTRY | (uint32_t)e->flags << 8 | (uint32_t)e->codec << 16 |
                                (uint32_t)e->compression << 24,
                            e->count));
    at = store(at, e->offset);
    at = store(at, (uint64_t)e->timestamp);
    at = store(at, pair(e->key_bytes, e->headers_bytes));
    at = store(at, pair(e->value_bytes, e->raw));
    if (e->flags & SHMQ_E_PRODUCED) {
        at = store(at, e->producer);
        at = store(at, e->sequence);
    }
    return at;
}

/* Copies the value to `at`. If it is large, `crc`, the checksum of the bytes before `*from`, is
 * extended over it, and `*from` moved. Returns the place behind the value. */
static unsigned char *put_value(unsigned char *at, const struct shmq_entry *e,
                                const unsigned char **from, uint32_t *crc)
{
#ifndef __SANITIZE_THREAD__
    if (e->value_bytes >= LARGE) {
        *crc = shmq_crc32c(*crc, *from, (size_t)(at - *from));
        *crc = shmq_crc32c_copy(*crc, at, e->value, e->value_bytes);
        return (unsigned char *)(*from = at + e->value_bytes);
    }
#else
    (void)from, (void)crc; /* all of it is summed at the end, of bytes that are stored so */
#endif
    return put(at, e->value, e->value_bytes);
}

/* The zeros behind the parts, and `seen`. */
static inline void put_tail(unsigned char *end, const struct shmq_entry *e)
{
    if (e->flags & SHMQ_E_SEEN) {
        store(end - 16, 0);
        store(end - SHMQ_ENTRY_SEEN, (uint64_t)e->seen);
    } else {
        store(end - 8, 0);
    }
}

unsigned char *shmq_entry_write(unsigned char *at, uint32_t salt, const struct shmq_entry *e)
{
    uint64_t size = shmq_entry_size(e->flags, e->value_bytes, e->key_bytes, e->headers_bytes);
    unsigned char *end = at + size, *to;
    const unsigned char *from = at + 8;
    uint32_t words = (uint32_t)((size - 8) / 8), crc;

    store(at, words);
    crc = shmq_crc32c(salt, at, 4);
    put_tail(end, e);
    to = put_head(at, e);
    to = put_value(to, e, &from, &crc);
    to = put(to, e->key, e->key_bytes);
    put(to, e->headers, e->headers_bytes);
    store(at, pair(words, shmq_crc32c(crc, from, (size_t)(end - from))));
    return end;
}

unsigned char *shmq_entry_write_unsealed(unsigned char *at, const struct shmq_entry *e)
{
    uint64_t size = shmq_entry_size(e->flags, e->value_bytes, e->key_bytes, e->headers_bytes);
    unsigned char *end = at + size, *to;

    if (e->value)
        put_tail(end, e);
    store(at, (size - 8) / 8);
    to = put_head(at, e);
    if (e->value)
        put(to, e->value, e->value_bytes);
    to += e->value_bytes;
    to = put(to, e->key, e->key_bytes);
    to = put(to, e->headers, e->headers_bytes);
    if (!e->value) {
        static const unsigned char zeros[8];

        to = put(to, zeros, (size_t)(end - to) % 8);
        if (e->flags & SHMQ_E_SEEN)
            store(to, (uint64_t)e->seen);
    }
    return end;
}

void shmq_entry_write_skip(unsigned char *at, uint64_t size)
{
    store(at, (size - 8) / 8);
    store(at + 8, pair(SHMQ_R_SKIP, 1));
}

unsigned char *shmq_entry_write_value(unsigned char *at, uint64_t offset, int64_t timestamp,
                                      const void *value, uint32_t bytes)
{
    uint64_t size = shmq_entry_size(0, bytes, 0, 0);
    unsigned char *end = at + size;

    store(end - 8, 0);
    store(at, (size - 8) / 8);
    store(at + 8, pair(SHMQ_R_ENTRY, 1));
    store(at + 16, offset);
    store(at + 24, (uint64_t)timestamp);
    store(at + 32, 0);
    store(at + 40, bytes);
    put(at + SHMQ_ENTRY_HEAD, value, bytes);
    return end;
}

static inline uint32_t checksum(const unsigned char *at, uint64_t size, uint32_t salt)
{
    uint32_t crc = shmq_crc32c(salt, at, 4);

    return shmq_crc32c(crc, at + 8, (size_t)size - 8);
}

void shmq_entry_seal(unsigned char *at, uint32_t salt)
{
    uint32_t words = low(shmq_entry_word(at));

    store(at, pair(words, checksum(at, 8 + (uint64_t)words * 8, salt)));
}

void shmq_entry_seal_all(unsigned char *at, uint64_t size, uint32_t salt)
{
    while (size >= 16) {
        uint64_t first = shmq_entry_word(at), whole = 8 + (uint64_t)low(first) * 8;

        if (!low(first) || whole > size)
            return;
        if (!high(first))
            shmq_entry_seal(at, salt);
        at += whole;
        size -= whole;
    }
}

/* Fills `e` from its head, all of whose bytes are readable. */
static bool read_head(const unsigned char *at, uint64_t size, struct shmq_entry *e)
{
    uint64_t second = shmq_entry_word(at + 8), fifth = shmq_entry_word(at + 32);
    uint64_t sixth = shmq_entry_word(at + 40);

    e->flags = (uint8_t)(second >> 8);
    e->codec = (uint8_t)(second >> 16);
    e->compression = (uint8_t)(second >> 24);
    e->count = high(second);
    e->offset = shmq_entry_word(at + 16);
    e->timestamp = (int64_t)shmq_entry_word(at + 24);
    e->seen = e->flags & SHMQ_E_SEEN ? (int64_t)shmq_entry_word(at + size - SHMQ_ENTRY_SEEN)
                                     : e->timestamp;
    e->key_bytes = low(fifth);
    e->headers_bytes = high(fifth);
    e->value_bytes = low(sixth);
    e->raw = high(sixth);
    return !(e->flags & ~SHMQ_E_FLAGS) && e->compression <= SHMQ_ZSTD && e->count &&
           (e->compression != SHMQ_PLAIN || (e->count == 1 && !e->raw)) &&
           e->offset + e->count > e->offset && (e->flags & SHMQ_E_KEYED || !e->key_bytes) &&
           size == shmq_entry_size(e->flags, e->value_bytes, e->key_bytes, e->headers_bytes);
}

static void read_parts(const unsigned char *at, struct shmq_entry *e)
{
    at += SHMQ_ENTRY_HEAD;
    e->producer = e->sequence = 0;
    if (e->flags & SHMQ_E_PRODUCED) {
        e->producer = shmq_entry_word(at);
        e->sequence = shmq_entry_word(at + 8);
        at += SHMQ_ENTRY_PRODUCER;
    }
    e->value = at;
    e->key = e->value + e->value_bytes;
    e->headers = e->key + e->key_bytes;
}

enum shmq_entry_read shmq_entry_read(const unsigned char *bytes, uint64_t size, uint32_t salt,
                                     bool verify, struct shmq_entry *e, uint64_t *next)
{
    uint64_t first, whole;

    if (size < 8)
        return size ? SHMQ_E_WRONG : SHMQ_E_END;
    first = shmq_entry_word(bytes);
    if (!low(first))
        return SHMQ_E_END;
    whole = 8 + (uint64_t)low(first) * 8;
    if (whole > size || whole < 16 || (verify && checksum(bytes, whole, salt) != high(first)))
        return SHMQ_E_WRONG;
    *next = whole;
    if ((uint8_t)shmq_entry_word(bytes + 8) != SHMQ_R_ENTRY)
        return SHMQ_E_OTHER;
    if (whole < SHMQ_ENTRY_HEAD || !read_head(bytes, whole, e))
        return SHMQ_E_WRONG;
    read_parts(bytes, e);
    return SHMQ_E_OK;
}
