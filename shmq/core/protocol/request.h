/* What a client sends and receives: a buffer that grows, and requests written to its end. */
#ifndef SHMQ_PROTOCOL_REQUEST_H
#define SHMQ_PROTOCOL_REQUEST_H

#include <stddef.h>

#include "protocol/frame.h"

/* Bytes start..end are content, those behind are room. */
struct shmq_buffer {
    unsigned char *data;
    size_t start, end, room;
};

/* Makes room for `size` more bytes at `end`; what lies before `start` may go. False: there
 * is no memory, and nothing has changed. */
bool shmq_buffer_reserve(struct shmq_buffer *b, size_t size);

/* Takes `size` bytes from the front. One that is then empty begins anew, and what it grew
 * beyond `keep` bytes is given back. */
void shmq_buffer_take(struct shmq_buffer *b, size_t size, size_t keep);

void shmq_buffer_free(struct shmq_buffer *b);

/* Appends the head of a request: its header and, unless `name` is NULL, the name. Ensures
 * that `rest` bytes of payload behind it can be written at what it returns, and counts them
 * as written. NULL: there is no memory, and nothing was appended. */
unsigned char *shmq_request(struct shmq_buffer *b, uint8_t type, uint32_t id, const char *name,
                            uint16_t name_bytes, uint32_t rest);

#endif
