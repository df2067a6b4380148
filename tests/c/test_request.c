/* The buffers of a client, and the requests in them. */
#include "protocol/request.h"

#include "harness.h"

#include <string.h>

#define SOME 3000

static void fill(struct shmq_buffer *b, size_t size, unsigned char from)
{
    CHECK(shmq_buffer_reserve(b, size));
    for (size_t i = 0; i < size; i++)
        b->data[b->end + i] = (unsigned char)(from + i);
    b->end += size;
}

static void expect(const struct shmq_buffer *b, size_t size, unsigned char from)
{
    CHECK_EQ(b->end - b->start, size);
    for (size_t i = 0; i < size; i++)
        CHECK_EQ(b->data[b->start + i], (unsigned char)(from + i));
}

TEST("a buffer keeps its content while it grows")
{
    struct shmq_buffer b = {0};

    for (size_t size = 0; size < 100 * SOME; size += SOME)
        fill(&b, SOME, (unsigned char)size);
    for (size_t size = 0; size < 100 * SOME; size += SOME) {
        CHECK_EQ(b.data[b.start], (unsigned char)size);
        shmq_buffer_take(&b, SOME, 1 << 20);
    }
    CHECK_EQ(b.end - b.start, 0);
    shmq_buffer_free(&b);
}

TEST("what was taken makes room without more memory")
{
    struct shmq_buffer b = {0};
    size_t room;

    fill(&b, SOME, 0);
    room = b.room;
    for (int i = 0; i < 1000; i++) {
        shmq_buffer_take(&b, SOME - 5, 1 << 20);
        expect(&b, 5, (unsigned char)(SOME - 5));
        shmq_buffer_take(&b, 5, 1 << 20);
        fill(&b, SOME, 0);
        CHECK(b.room <= 2 * room);
    }
    shmq_buffer_free(&b);
}

TEST("a part that is left moves to the front where there is room behind it")
{
    struct shmq_buffer b = {0};
    size_t room;

    fill(&b, 4000, 0);
    room = b.room;
    shmq_buffer_take(&b, 3990, 1 << 20);
    fill(&b, 3000, (unsigned char)(4000 % 256));
    CHECK_EQ(b.room, room);
    expect(&b, 3010, (unsigned char)(3990 % 256));
    shmq_buffer_free(&b);
}

TEST("an empty buffer gives back what it grew beyond its keep")
{
    struct shmq_buffer b = {0};

    fill(&b, 100000, 0);
    shmq_buffer_take(&b, 100000, 1000);
    CHECK_EQ(b.room, 0);
    fill(&b, 10, 0);
    shmq_buffer_take(&b, 10, 1 << 20);
    CHECK(b.room > 0);
    shmq_buffer_free(&b);
}

TEST("a request is a header, a name and room for the rest")
{
    struct shmq_buffer b = {0};
    struct shmq_frame frame;
    unsigned char *rest;

    rest = shmq_request(&b, SHMQ_T_ACK, 0x01020304, "jobs", 4, 8);
    CHECK(rest == b.data + SHMQ_FRAME_HEADER + 2 + 4);
    CHECK_EQ(b.end, SHMQ_FRAME_HEADER + 2 + 4 + 8);
    CHECK_EQ(shmq_frame_read(b.data, &frame), SHMQ_S_OK);
    CHECK_EQ(frame.type, SHMQ_T_ACK);
    CHECK_EQ(frame.id, 0x01020304);
    CHECK_EQ(frame.length, 2 + 4 + 8);
    CHECK(!memcmp(b.data + SHMQ_FRAME_HEADER, "\0\4jobs", 6));

    rest = shmq_request(&b, SHMQ_T_LIST, 1, NULL, 0, 0);
    CHECK(rest == b.data + b.end);
    CHECK_EQ(shmq_frame_read(rest - SHMQ_FRAME_HEADER, &frame), SHMQ_S_OK);
    CHECK_EQ(frame.length, 0);
    shmq_buffer_free(&b);
}
