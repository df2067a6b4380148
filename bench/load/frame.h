/* A frame of the DEADBEEF protocol: sixteen bytes, then a payload. */
#ifndef BENCH_FRAME_H
#define BENCH_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FRAME_MAGIC 0xDEADBEEFu
#define FRAME_HEADER 16u
#define FRAME_MORE 0x0100u

enum frame_type {
    FRAME_PING = 0x02,
    FRAME_CREATE = 0x10,
    FRAME_DELETE = 0x11,
    FRAME_PRODUCE = 0x20,
    FRAME_PRODUCE_BATCH = 0x21,
    FRAME_CONSUME = 0x30,
    FRAME_SUBSCRIBE = 0x31,
    FRAME_UNSUBSCRIBE = 0x33,
    FRAME_DELIVER = 0x38,
    FRAME_ACK = 0x40,
    FRAME_REPLY = 0x7F,
};

enum frame_status { FRAME_OK = 0, FRAME_QUEUE_EMPTY = 2, FRAME_NO_QUEUE = 3 };

struct frame {
    uint8_t type;
    uint16_t status;
    uint32_t id;
    const uint8_t *payload;
    size_t length;
};

static inline uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t get32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return __builtin_bswap32(value);
}

static inline uint64_t get64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return __builtin_bswap64(value);
}

static inline uint8_t *put16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
    return at + 2;
}

static inline uint8_t *put32(uint8_t *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, sizeof(value));
    return at + 4;
}

static inline uint8_t *put64(uint8_t *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, sizeof(value));
    return at + 8;
}

/* Write the header of a request; returns the place of its payload. */
static inline uint8_t *frame_begin(uint8_t *at, uint8_t type, uint32_t id, size_t length)
{
    at = put32(at, FRAME_MAGIC);
    at = put32(at, (uint32_t)length);
    *at++ = type;
    *at++ = 1;
    at = put16(at, 0);
    return put32(at, id);
}

static inline uint8_t *frame_name(uint8_t *at, const char *name)
{
    size_t length = strlen(name);

    at = put16(at, (uint16_t)length);
    memcpy(at, name, length);
    return at + length;
}

/* Take one frame: its length, or 0 if it is incomplete. An invalid frame ends the process. */
size_t frame_read(struct frame *, const uint8_t *data, size_t length);
/* End the process unless the frame is a REPLY of this status. */
void frame_expect(const struct frame *, uint32_t id, uint16_t status);

#endif
