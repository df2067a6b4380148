#include "file/record.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "queue/layout.h"

#define FIXED_PUT 32u    /* bytes of the payload before the optional fields             */
#define FIXED_UPDATE 16u

_Static_assert(sizeof(struct shmq_taken) == 32, "an entry of a DEDUPE record");
_Static_assert(sizeof(struct shmq_indexed_batch) == 24, "an entry of an INDEX record");
_Static_assert(SHMQ_RECORD_HEAD + 48 == SHMQ_BATCH_BYTES, "a BATCH record");

/* ---- bytes ---- */

static inline uint64_t take64(const unsigned char **at)
{
    uint64_t value = shmq_load64_little(*at);

    *at += 8;
    return value;
}

/* ---- sizes ---- */

static inline uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~7ull; }

/* Bytes of the optional fields that the flags name. */
static inline uint64_t optional(uint8_t flags)
{
    return (flags & SHMQ_R_GROUPED ? 8 : 0) + (flags & SHMQ_R_TTL ? 8 : 0) +
           (flags & SHMQ_R_DELAYED ? 8 : 0) + (flags & SHMQ_R_DEAD ? 8 : 0) +
           (flags & SHMQ_R_ORIGIN ? 16 : 0);
}

/* Those of an UPDATE are the ones that may change. */
static inline uint8_t flags_of(const struct shmq_record *r)
{
    return r->type == SHMQ_R_UPDATE ? r->flags & SHMQ_R_UPDATABLE : r->flags;
}

static uint64_t entry_bytes(uint8_t type)
{
    return type == SHMQ_R_SETTLE   ? 8
           : type == SHMQ_R_DEDUPE ? sizeof(struct shmq_taken)
                                   : sizeof(struct shmq_indexed_batch);
}

static uint64_t payload_bytes(const struct shmq_record *r)
{
    switch (r->type) {
    case SHMQ_R_PUT:
        return FIXED_PUT + optional(r->flags) + padded((uint64_t)r->body_bytes + r->meta_bytes);
    case SHMQ_R_UPDATE: return FIXED_UPDATE + optional(flags_of(r));
    case SHMQ_R_SETTLE:
    case SHMQ_R_DEDUPE:
    case SHMQ_R_INDEX: return 8 + entry_bytes(r->type) * r->count;
    case SHMQ_R_BATCH: return SHMQ_BATCH_BYTES - SHMQ_RECORD_HEAD;
    case SHMQ_R_STATE: return 16 + 8 * SHMQ_TOTALS;
    case SHMQ_R_END: return 40;
    default: return 24;
    }
}

size_t shmq_record_size(const struct shmq_record *r)
{
    uint64_t payload = payload_bytes(r);

    return payload / 8 > UINT32_MAX || payload > SIZE_MAX - SHMQ_RECORD_HEAD
               ? 0
               : (size_t)payload + SHMQ_RECORD_HEAD;
}

/* ---- encoding ---- */

static unsigned char *write_optional(unsigned char *at, const struct shmq_record *r)
{
    uint8_t flags = flags_of(r);

    if (flags & SHMQ_R_GROUPED)
        at = shmq_store64_little(at, r->group);
    if (flags & SHMQ_R_TTL)
        at = shmq_store64_little(at, (uint64_t)r->expires);
    if (flags & SHMQ_R_DELAYED)
        at = shmq_store64_little(at, (uint64_t)r->until);
    if (flags & SHMQ_R_DEAD)
        at = shmq_store64_little(at, (uint64_t)r->dead_at);
    if (flags & SHMQ_R_ORIGIN) {
        at = shmq_store64_little(at, r->origin_queue);
        at = shmq_store64_little(at, r->origin_seq);
    }
    return at;
}

static unsigned char *write_message(unsigned char *at, const struct shmq_record *r)
{
    at[1] = flags_of(r);
    at[2] = r->type == SHMQ_R_PUT ? r->priority : 0;
    at[3] = r->type == SHMQ_R_PUT ? r->codec : 0;
    shmq_store16_little(at + 4, r->deliveries);
    at[6] = r->flags & SHMQ_R_DEAD ? r->reason : 0;
    shmq_store64_little(at + 8, r->seq);
    if (r->type == SHMQ_R_UPDATE)
        return write_optional(at + FIXED_UPDATE, r);
    shmq_store64_little(at + 16, (uint64_t)r->put_at);
    shmq_store32_little(at + 24, r->body_bytes);
    shmq_store32_little(at + 28, r->meta_bytes);
    return write_optional(at + FIXED_PUT, r);
}

static void write_entries(unsigned char *at, const struct shmq_record *r)
{
    uint64_t bytes = entry_bytes(r->type) * r->count;

    shmq_store32_little(at + 4, r->count);
    at += 8;
    if (SHMQ_IS_LITTLE && bytes)
        memcpy(at, r->entries, bytes);
    else
        for (uint64_t i = 0; i < bytes / 8; i++)
            at = shmq_store64_little(at, ((const uint64_t *)r->entries)[i]);
}

static void write_fixed(unsigned char *at, const struct shmq_record *r)
{
    at += 8;
    switch (r->type) {
    case SHMQ_R_BATCH:
        shmq_store32_little(at - 4, r->crc);
        at = shmq_store64_little(at, r->batch);
        at = shmq_store64_little(at, (uint64_t)r->wall);
        at = shmq_store64_little(at, r->last_seq);
        at = shmq_store64_little(at, r->bytes);
        shmq_store64_little(at, 0);
        break;
    case SHMQ_R_STATE:
        at = shmq_store64_little(at, r->last_seq);
        for (int i = 0; i < SHMQ_TOTALS; i++)
            at = shmq_store64_little(at, r->totals[i]);
        break;
    case SHMQ_R_END:
        at = shmq_store64_little(at, r->batch);
        at = shmq_store64_little(at, r->last_seq);
        at = shmq_store64_little(at, r->batches);
        shmq_store64_little(at, r->puts);
        break;
    default:
        at = shmq_store64_little(at, r->end);
        shmq_store64_little(at, r->index);
        break;
    }
}

unsigned char *shmq_record_begin(unsigned char *at, const struct shmq_record *r)
{
    size_t size = shmq_record_size(r);

    shmq_store32_little(at, (uint32_t)((size - SHMQ_RECORD_HEAD) / 8));
    shmq_store64_little(at + size - 8, 0);
    at += SHMQ_RECORD_HEAD;
    shmq_store64_little(at, r->type);
    switch (r->type) {
    case SHMQ_R_PUT:
    case SHMQ_R_UPDATE: return write_message(at, r);
    case SHMQ_R_SETTLE:
    case SHMQ_R_DEDUPE:
    case SHMQ_R_INDEX: write_entries(at, r); break;
    default: write_fixed(at, r); break;
    }
    return at;
}

static inline size_t size_at(const unsigned char *at)
{
    return SHMQ_RECORD_HEAD + (size_t)shmq_load32_little(at) * 8;
}

static inline uint32_t checksum(const unsigned char *at, size_t size, uint32_t salt)
{
    uint32_t crc = shmq_crc32c(salt, at, 4);

    return shmq_crc32c(crc, at + SHMQ_RECORD_HEAD, size - SHMQ_RECORD_HEAD);
}

unsigned char *shmq_record_seal(unsigned char *at, uint32_t salt)
{
    size_t size = size_at(at);

    shmq_store32_little(at + 4, checksum(at, size, salt));
    return at + size;
}

unsigned char *shmq_record_write(unsigned char *at, uint32_t salt, const struct shmq_record *r)
{
    unsigned char *body = shmq_record_begin(at, r);

    if (r->type == SHMQ_R_PUT) {
        if (r->body_bytes)
            memcpy(body, r->body, r->body_bytes);
        if (r->meta_bytes)
            memcpy(body + r->body_bytes, r->meta, r->meta_bytes);
    }
    return shmq_record_seal(at, salt);
}

void shmq_records_seal(unsigned char *bytes, size_t size, uint32_t salt)
{
    for (unsigned char *end = bytes + size;
         (size_t)(end - bytes) >= SHMQ_RECORD_HEAD && size_at(bytes) <= (size_t)(end - bytes);)
        bytes = shmq_record_seal(bytes, salt);
}

/* ---- decoding ---- */

static bool flags_are_sound(const struct shmq_record *r)
{
    if (r->flags & ~SHMQ_R_FLAGS || (r->flags & SHMQ_R_HOLDS && !(r->flags & SHMQ_R_DELAYED)))
        return false;
    if (r->flags & SHMQ_R_DEAD)
        return r->reason > SHMQ_ALIVE && r->reason <= SHMQ_EXPIRED_TTL &&
               !(r->flags & SHMQ_R_DELAYED);
    return r->reason == SHMQ_ALIVE;
}

static void read_optional(const unsigned char *at, struct shmq_record *r)
{
    r->group = r->flags & SHMQ_R_GROUPED ? take64(&at) : 0;
    r->expires = r->flags & SHMQ_R_TTL ? (int64_t)take64(&at) : 0;
    r->until = r->flags & SHMQ_R_DELAYED ? (int64_t)take64(&at) : 0;
    r->dead_at = r->flags & SHMQ_R_DEAD ? (int64_t)take64(&at) : 0;
    r->origin_queue = r->flags & SHMQ_R_ORIGIN ? take64(&at) : 0;
    r->origin_seq = r->flags & SHMQ_R_ORIGIN ? take64(&at) : 0;
}

static bool is_zero(const unsigned char *at, const unsigned char *end)
{
    while (at < end)
        if (*at++)
            return false;
    return true;
}

static bool read_message(const unsigned char *at, uint64_t size, struct shmq_record *r)
{
    bool put = r->type == SHMQ_R_PUT;
    uint64_t fixed = put ? FIXED_PUT : FIXED_UPDATE, text;

    if (size < fixed || at[7])
        return false;
    r->flags = at[1];
    r->priority = at[2];
    r->codec = at[3];
    r->deliveries = shmq_load16_little(at + 4);
    r->reason = at[6];
    r->seq = shmq_load64_little(at + 8);
    if (!r->seq || !flags_are_sound(r) || size < fixed + optional(r->flags))
        return false;
    read_optional(at + fixed, r);
    if (!put)
        return size == fixed + optional(r->flags) && !(r->flags & ~SHMQ_R_UPDATABLE) &&
               !r->priority && !r->codec;
    r->put_at = (int64_t)shmq_load64_little(at + 16);
    r->body_bytes = shmq_load32_little(at + 24);
    r->meta_bytes = shmq_load32_little(at + 28);
    r->body = at + fixed + optional(r->flags);
    r->meta = (const unsigned char *)r->body + r->body_bytes;
    text = (uint64_t)r->body_bytes + r->meta_bytes;
    return r->priority < SHMQ_MAX_PRIORITIES && !(r->flags & SHMQ_R_GROUPED && !r->group) &&
           size == payload_bytes(r) &&
           (text % 8 == 0 || !(shmq_load64_little(at + size - 8) >> text % 8 * 8));
}

static bool read_entries(const unsigned char *at, uint64_t size, struct shmq_record *r)
{
    r->count = shmq_load32_little(at + 4);
    r->entries = at + 8;
    return is_zero(at + 1, at + 4) && size == payload_bytes(r);
}

static bool read_fixed(const unsigned char *at, uint64_t size, struct shmq_record *r)
{
    const unsigned char *end = at + size;

    if (size != payload_bytes(r))
        return false;
    r->crc = shmq_load32_little(at + 4);
    if (!is_zero(at + 1, at + 4) || (r->type != SHMQ_R_BATCH && r->crc))
        return false;
    at += 8;
    switch (r->type) {
    case SHMQ_R_BATCH:
        r->batch = take64(&at);
        r->wall = (int64_t)take64(&at);
        r->last_seq = take64(&at);
        r->bytes = take64(&at);
        return r->bytes % 8 == 0 && is_zero(at, end);
    case SHMQ_R_STATE:
        r->last_seq = take64(&at);
        for (int i = 0; i < SHMQ_TOTALS; i++)
            r->totals[i] = take64(&at);
        return true;
    case SHMQ_R_END:
        r->batch = take64(&at);
        r->last_seq = take64(&at);
        r->batches = take64(&at);
        r->puts = take64(&at);
        return true;
    default:
        r->end = take64(&at);
        r->index = take64(&at);
        return true;
    }
}

static enum shmq_read read_payload(const unsigned char *at, uint64_t size, struct shmq_record *r)
{
    bool sound;

    r->type = at[0];
    if (r->type == SHMQ_R_PUT) /* to clear the whole record first would take longer */
        return read_message(at, size, r) ? SHMQ_READ_OK : SHMQ_READ_MALFORMED;
    memset(r, 0, sizeof *r);
    r->type = at[0];
    switch (r->type) {
    case SHMQ_R_UPDATE: sound = read_message(at, size, r); break;
    case SHMQ_R_SETTLE:
    case SHMQ_R_DEDUPE:
    case SHMQ_R_INDEX: sound = read_entries(at, size, r); break;
    case SHMQ_R_BATCH:
    case SHMQ_R_STATE:
    case SHMQ_R_END:
    case SHMQ_R_FOOTER: sound = read_fixed(at, size, r); break;
    default: return SHMQ_READ_TYPE;
    }
    return sound ? SHMQ_READ_OK : SHMQ_READ_MALFORMED;
}

enum shmq_read shmq_record_read(const unsigned char *bytes, size_t size, uint32_t salt, bool verify,
                                struct shmq_record *r, size_t *next)
{
    uint32_t words;

    *next = 0;
    if (size < SHMQ_RECORD_HEAD)
        return size ? SHMQ_READ_CUT : SHMQ_READ_END;
    words = shmq_load32_little(bytes);
    if (!words)
        return SHMQ_READ_END;
    if (words > (size - SHMQ_RECORD_HEAD) / 8)
        return SHMQ_READ_CUT;
    if (verify && shmq_load32_little(bytes + 4) != checksum(bytes, size_at(bytes), salt))
        return SHMQ_READ_CRC;
    *next = size_at(bytes);
    return read_payload(bytes + SHMQ_RECORD_HEAD, (uint64_t)words * 8, r);
}

/* ---- entries ---- */

uint64_t shmq_record_settled(const struct shmq_record *r, uint32_t at)
{
    return shmq_load64_little((const unsigned char *)r->entries + 8ull * at);
}

struct shmq_taken shmq_record_taken(const struct shmq_record *r, uint32_t at)
{
    const unsigned char *entry = (const unsigned char *)r->entries + 32ull * at;

    return (struct shmq_taken){
        .hash = {shmq_load64_little(entry), shmq_load64_little(entry + 8)},
        .seq = shmq_load64_little(entry + 16),
        .until = (int64_t)shmq_load64_little(entry + 24),
    };
}

struct shmq_indexed_batch shmq_record_indexed(const struct shmq_record *r, uint32_t at)
{
    const unsigned char *entry = (const unsigned char *)r->entries + 24ull * at;

    return (struct shmq_indexed_batch){.offset = shmq_load64_little(entry),
                                       .batch = shmq_load64_little(entry + 8),
                                       .last_seq = shmq_load64_little(entry + 16)};
}
