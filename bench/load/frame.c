#include "frame.h"

#include "load.h"

size_t frame_read(struct frame *frame, const uint8_t *data, size_t length)
{
    if (length < SHMQ_FRAME_HEADER)
        return 0;
    if (shmq_load32(data) != SHMQ_FRAME_MAGIC || data[9] != SHMQ_FRAME_VERSION)
        fail("the server sent what is not a frame of version 1");
    frame->length = shmq_load32(data + 4);
    if (length - SHMQ_FRAME_HEADER < frame->length)
        return 0;
    frame->type = data[8];
    frame->status = shmq_load16(data + 10);
    frame->id = shmq_load32(data + 12);
    frame->payload = data + SHMQ_FRAME_HEADER;
    return SHMQ_FRAME_HEADER + frame->length;
}

void frame_expect(const struct frame *frame, uint32_t id, uint16_t status)
{
    int text = frame->status == status ? 0 : (int)(frame->length < 200 ? frame->length : 200);

    if (frame->type != SHMQ_T_REPLY || frame->id != id || frame->status != status)
        fail("answer of type 0x%02x, status %u, id %u, where a REPLY of status %u, id %u is due: "
             "%.*s", frame->type, frame->status, frame->id, status, id, text,
             (const char *)frame->payload);
}
