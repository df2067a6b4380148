#include "queue.h"

#include <string.h>

#include "frame.h"

/* The part of MessagePack that the options of a queue need. */
static uint8_t *text(uint8_t *at, const char *value)
{
    size_t length = strlen(value); /* at most 31 */

    *at++ = (uint8_t)(0xA0 | length);
    memcpy(at, value, length);
    return at + length;
}

static uint8_t *number(uint8_t *at, const char *key, uint64_t value)
{
    at = text(at, key);
    *at++ = 0xCF;
    return shmq_store64(at, value);
}

/* Room for the messages of a round with their overhead; with a journal, also for those of the
 * previous round, which stay until the journal has their settlement. */
static uint8_t *options(uint8_t *at, const struct plan *plan)
{
    uint64_t body = plan->size + 64, messages = plan->messages * (plan->files ? 2 : 1);

    *at++ = plan->files ? 0x86 : 0x85;
    if (plan->files) {
        at = text(at, "durability");
        at = text(at, "journal");
    }
    at = number(at, "capacity", messages);
    at = number(at, "arena_bytes", messages * (body + body / 4) + (1u << 20));
    at = number(at, "max_message_bytes", plan->size + 4096);
    at = number(at, "visibility_timeout", 600);
    at = text(at, "dead_letter");
    *at++ = 0xC0;
    return at;
}

static void talk(struct line *line, uint8_t type, const uint8_t *payload, size_t length)
{
    uint8_t said[1024], heard[1024];
    struct frame frame;
    uint8_t *at = frame_begin(said, type, 1, length);
    size_t left;

    memcpy(at, payload, length);
    line_write_all(line, said, SHMQ_FRAME_HEADER + length);
    line_read_all(line, heard, SHMQ_FRAME_HEADER);
    left = shmq_load32(heard + 4);
    if (left > sizeof(heard) - SHMQ_FRAME_HEADER)
        fail("an answer of %zu bytes came where none is due", left);
    line_read_all(line, heard + SHMQ_FRAME_HEADER, left);
    frame_read(&frame, heard, SHMQ_FRAME_HEADER + left);
    frame_expect(&frame, 1, SHMQ_S_OK);
}

void queue_create(struct line *line)
{
    uint8_t payload[512];
    uint8_t *at = options(frame_name(payload, line->crew->plan->queue), line->crew->plan);

    talk(line, SHMQ_T_CREATE, payload, (size_t)(at - payload));
}

void queue_delete(struct line *line)
{
    uint8_t payload[512];
    uint8_t *at = frame_name(payload, line->crew->plan->queue);

    talk(line, SHMQ_T_DELETE, payload, (size_t)(at - payload));
}
