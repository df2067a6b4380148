/* A frame of the DEADBEEF protocol, as the load generator sees it. */
#ifndef BENCH_FRAME_H
#define BENCH_FRAME_H

#include "protocol/frame.h"

struct frame {
    uint8_t type;
    uint16_t status;
    uint32_t id;
    const uint8_t *payload;
    size_t length;
};

/* Write the header of a request; returns the place of its payload. */
static inline uint8_t *frame_begin(uint8_t *at, uint8_t type, uint32_t id, size_t length)
{
    return shmq_frame_write(at, type, 0, id, (uint32_t)length);
}

static inline uint8_t *frame_name(uint8_t *at, const char *name)
{
    size_t length = strlen(name);

    at = shmq_store16(at, (uint16_t)length);
    memcpy(at, name, length);
    return at + length;
}

/* Take one frame: its length, or 0 if it is incomplete. An invalid frame ends the process. */
size_t frame_read(struct frame *, const uint8_t *data, size_t length);
/* End the process unless the frame is a REPLY of this status. */
void frame_expect(const struct frame *, uint32_t id, uint16_t status);

#endif
