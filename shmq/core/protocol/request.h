/* A client's buffers: a buffer that grows, and requests appended to it. */
#pragma once

#include <stddef.h>

#include "protocol/frame.h"

/* Bytes from start to end are content, those behind are room. */
struct shmq_buffer {
    unsigned char *data;
    size_t start, end, room;
};

/* Makes room for `size` more bytes at `end`; bytes before `start` may be discarded. False: there is
 * no memory, and nothing has changed. */
bool shmq_buffer_reserve(struct shmq_buffer *b, size_t size);

/* Removes `size` bytes from the front. A buffer that is then empty starts over, and memory beyond
 * `keep` bytes is freed. */
void shmq_buffer_take(struct shmq_buffer *b, size_t size, size_t keep);

void shmq_buffer_free(struct shmq_buffer *b);

/* Appends the head of a request: its header and, unless `name` is NULL, the name. Returns the place
 * for `rest` more bytes of payload, which count as written. NULL: out of memory, and nothing
 * was appended. */
unsigned char *shmq_request(struct shmq_buffer *b, uint8_t type, uint32_t id, const char *name,
                            uint16_t name_bytes, uint32_t rest);
