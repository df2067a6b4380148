#include "queue/transfer.h"

#include <string.h>

#define MAGIC 0x4b4e4843u /* "CHNK" */

enum { GROUPED = 1, DELAYED = 2, TTL = 4, DEDUPE = 8 };

/* The beginning of a row. Behind it: the group, the delay, the ttl and the dedupe id, if
 * present; then the properties, the body, and zeros up to a multiple of 8 bytes. */
struct head {
    uint32_t body_bytes, meta_bytes;
    uint8_t priority, codec, flags, reserved[5];
};

_Static_assert(sizeof(struct head) == 16, "a row's head");

static uint8_t flags_of(const struct shmq_put *put)
{
    return (uint8_t)((put->group ? GROUPED : 0) | (put->delay > 0 ? DELAYED : 0) |
                     (put->ttl ? TTL : 0) | (put->dedupe ? DEDUPE : 0));
}

static uint64_t extra_bytes(uint8_t flags)
{
    return (flags & GROUPED ? 8u : 0) + (flags & DELAYED ? 8u : 0) + (flags & TTL ? 8u : 0) +
           (flags & DEDUPE ? 16u : 0);
}

static uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~7ull; }

uint64_t shmq_row_bytes(const struct shmq_put *put)
{
    return padded(sizeof(struct head) + extra_bytes(flags_of(put)) + put->meta_bytes +
                  put->body_bytes);
}

static unsigned char *add(unsigned char *to, const void *what, uint64_t bytes)
{
    if (bytes)
        memcpy(to, what, bytes);
    return to + bytes;
}

unsigned char *shmq_row_chunk_begin(unsigned char *to, uint32_t rows, uint64_t target)
{
    uint32_t magic = MAGIC;

    return add(add(add(to, &magic, 4), &rows, 4), &target, 8);
}

unsigned char *shmq_row_write(unsigned char *to, const struct shmq_put *put)
{
    struct head head = {
        (uint32_t)put->body_bytes, put->meta_bytes, put->priority, put->codec, flags_of(put), {0}};
    unsigned char *end = to + shmq_row_bytes(put);

    memset(end - 8, 0, 8);
    to = add(to, &head, sizeof head);
    if (head.flags & GROUPED)
        to = add(to, &put->group, 8);
    if (head.flags & DELAYED)
        to = add(to, &put->delay, 8);
    if (head.flags & TTL)
        to = add(to, &put->ttl, 8);
    if (head.flags & DEDUPE)
        to = add(to, put->dedupe, 16);
    to = add(to, put->meta, put->meta_bytes);
    (void)add(to, put->body, put->body_bytes);
    return end;
}

bool shmq_row_chunk_read(struct shmq_row_chunk *chunk, const unsigned char *at, uint64_t bytes)
{
    uint32_t magic;

    memset(chunk, 0, sizeof *chunk);
    if (!at || bytes < SHMQ_ROW_CHUNK_HEAD)
        return false;
    memcpy(&magic, at, 4);
    memcpy(&chunk->rows, at + 4, 4);
    memcpy(&chunk->target, at + 8, 8);
    chunk->at = at + SHMQ_ROW_CHUNK_HEAD;
    chunk->end = at + bytes;
    return magic == MAGIC;
}

static const unsigned char *take(const unsigned char *at, void *to, bool there, uint64_t bytes)
{
    if (there)
        memcpy(to, at, bytes);
    return there ? at + bytes : at;
}

static const struct shmq_put nothing;

bool shmq_row_read(struct shmq_row_chunk *chunk, struct shmq_put *put)
{
    const unsigned char *at = chunk->at;
    uint64_t left = (uint64_t)(chunk->end - at);
    struct head head;
    uint64_t size;

    if (chunk->row == chunk->rows || left < sizeof head)
        return false;
    memcpy(&head, at, sizeof head);
    size = padded(sizeof head + extra_bytes(head.flags) + head.meta_bytes +
                  (uint64_t)head.body_bytes);
    if (size > left)
        return false;
    *put = nothing;
    put->body_bytes = head.body_bytes;
    put->meta_bytes = head.meta_bytes;
    put->priority = head.priority;
    put->codec = head.codec;
    at = take(at + sizeof head, &put->group, head.flags & GROUPED, 8);
    at = take(at, &put->delay, head.flags & DELAYED, 8);
    at = take(at, &put->ttl, head.flags & TTL, 8);
    at = take(at, chunk->hash, head.flags & DEDUPE, 16);
    put->dedupe = head.flags & DEDUPE ? chunk->hash : NULL;
    put->meta = at;
    put->body = at + head.meta_bytes;
    put->row = ++chunk->row;
    chunk->at += size;
    return true;
}
