#include "protocol/request.h"

#include <stdlib.h>

#define LEAST_ROOM 4096

bool shmq_buffer_reserve(struct shmq_buffer *b, size_t size)
{
    size_t held = b->end - b->start, room = b->room ? b->room : LEAST_ROOM;
    unsigned char *data;

    if (b->room - b->end >= size)
        return true;
    if (b->start && b->room - held >= size && b->start >= held) {
        memcpy(b->data, b->data + b->start, held);
        b->start = 0;
        b->end = held;
        return true;
    }
    while (room < held + size)
        room *= 2;
    data = malloc(room);
    if (!data)
        return false;
    if (held)
        memcpy(data, b->data + b->start, held);
    free(b->data);
    *b = (struct shmq_buffer){.data = data, .end = held, .room = room};
    return true;
}

void shmq_buffer_take(struct shmq_buffer *b, size_t size, size_t keep)
{
    b->start += size;
    if (b->start < b->end)
        return;
    b->start = b->end = 0;
    if (b->room > keep)
        shmq_buffer_free(b);
}

void shmq_buffer_free(struct shmq_buffer *b)
{
    free(b->data);
    *b = (struct shmq_buffer){0};
}

unsigned char *shmq_request(struct shmq_buffer *b, uint8_t type, uint32_t id, const char *name,
                            uint16_t name_bytes, uint32_t rest)
{
    size_t head = name ? 2 + (size_t)name_bytes : 0;
    unsigned char *at;

    if (!shmq_buffer_reserve(b, SHMQ_FRAME_HEADER + head + rest))
        return NULL;
    at = shmq_frame_write(b->data + b->end, type, 0, id, (uint32_t)(head + rest));
    if (name) {
        at = shmq_store16(at, name_bytes);
        memcpy(at, name, name_bytes);
        at += name_bytes;
    }
    b->end += SHMQ_FRAME_HEADER + head + rest;
    return at;
}
