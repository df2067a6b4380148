/* Blocks of columns: what is written is read, and what is not a block is refused. */
#include "queue/columns.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#define ROOM (64u << 10)

static _Alignas(8) unsigned char block[ROOM];

/* A block for `room` rows, of which `count` come: row n has n bytes of body, and 2n of meta. */
static uint64_t build(unsigned char *base, uint32_t room, uint32_t count)
{
    struct shmq_columns_layout layout;
    struct shmq_columns c;

    CHECK(shmq_columns_lay_out(&layout, room, room * (room - 1) / 2, room * (room - 1)));
    CHECK(layout.size <= ROOM);
    memset(base, 0xEE, layout.size);
    shmq_columns_begin(&c, base, &layout);
    for (uint32_t n = 0; n < count; n++) {
        struct shmq_row row = {.sequence = n + 1,
                               .put_at = -1,
                               .visible_at = n,
                               .lease_until = 2,
                               .expires = 3,
                               .dead_at = 4,
                               .deliveries = 5,
                               .priority = 6,
                               .state = 1 + n % 4,
                               .reason = n % 4,
                               .codec = 255,
                               .body_bytes = n,
                               .meta_bytes = 2 * n};
        unsigned char *body, *meta;

        CHECK(shmq_columns_next(&c, n, 2 * n, &body, &meta));
        memset(body, 'b', n);
        memset(meta, 'm', 2 * n);
        shmq_columns_add(&c, &row);
    }
    return shmq_columns_end(&c);
}

static void check_rows(const unsigned char *base, uint64_t size, uint32_t count)
{
    struct shmq_columns_layout p;
    const int32_t *bodies, *metas;

    CHECK(shmq_columns_read(base, size, &p));
    CHECK_EQ(p.count, count);
    bodies = (const int32_t *)(base + p.offset[SHMQ_COLUMN_BODY_OFFSETS]);
    metas = (const int32_t *)(base + p.offset[SHMQ_COLUMN_META_OFFSETS]);
    for (uint32_t n = 0; n < count; n++) {
        CHECK_EQ(((const uint64_t *)(base + p.offset[SHMQ_COLUMN_SEQUENCE]))[n], n + 1);
        CHECK_EQ(((const int64_t *)(base + p.offset[SHMQ_COLUMN_PUT_AT]))[n], -1);
        CHECK_EQ(((const int64_t *)(base + p.offset[SHMQ_COLUMN_VISIBLE_AT]))[n], n);
        CHECK_EQ(((const int64_t *)(base + p.offset[SHMQ_COLUMN_DEAD_AT]))[n], 4);
        CHECK_EQ(((const int32_t *)(base + p.offset[SHMQ_COLUMN_DELIVERIES]))[n], 5);
        CHECK_EQ(((const int32_t *)(base + p.offset[SHMQ_COLUMN_PRIORITY]))[n], 6);
        CHECK_EQ((base + p.offset[SHMQ_COLUMN_STATE])[n], 1 + n % 4);
        CHECK_EQ((base + p.offset[SHMQ_COLUMN_CODEC])[n], 255);
        CHECK_EQ(bodies[n + 1] - bodies[n], n);
        CHECK_EQ(metas[n + 1] - metas[n], 2 * n);
    }
    for (uint64_t i = 0; i < p.bytes[SHMQ_COLUMN_BODIES]; i++)
        CHECK_EQ((base + p.offset[SHMQ_COLUMN_BODIES])[i], 'b');
    for (uint64_t i = 0; i < p.bytes[SHMQ_COLUMN_METAS]; i++)
        CHECK_EQ((base + p.offset[SHMQ_COLUMN_METAS])[i], 'm');
}

TEST("rows that were written are read")
{
    for (uint32_t count = 0; count < 40; count++)
        check_rows(block, build(block, count ? count : 1, count), count);
}

TEST("a block of fewer rows than it had room for is as one that had no more room")
{
    static _Alignas(8) unsigned char exact[ROOM];

    for (uint32_t count = 1; count < 30; count++) {
        uint64_t size = build(block, 40, count), wanted = build(exact, count, count);

        CHECK_EQ(size, wanted);
        CHECK(!memcmp(block, exact, size));
        check_rows(block, size, count);
    }
}

TEST("a block may be written at any byte")
{
    static unsigned char anywhere[ROOM + 8];

    for (uint32_t shift = 0; shift < 8; shift++) {
        uint64_t size = build(anywhere + shift, 20, 13);

        memcpy(block, anywhere + shift, size);
        check_rows(block, size, 13);
    }
}

TEST("a row for which there is not enough room is not taken")
{
    struct shmq_columns_layout layout;
    struct shmq_columns c;
    struct shmq_row row = {.state = 1, .body_bytes = 3};
    unsigned char *body, *meta;

    CHECK(shmq_columns_lay_out(&layout, 2, 4, 1));
    shmq_columns_begin(&c, block, &layout);
    CHECK(!shmq_columns_next(&c, 5, 0, &body, &meta));
    CHECK(!shmq_columns_next(&c, 0, 2, &body, &meta));
    CHECK(shmq_columns_next(&c, 3, 0, &body, &meta));
    shmq_columns_add(&c, &row);
    CHECK(!shmq_columns_next(&c, 2, 0, &body, &meta));
    row.body_bytes = 0;
    shmq_columns_add(&c, &row);
    CHECK(!shmq_columns_next(&c, 0, 0, &body, &meta));
}

TEST("no block holds more than offsets of 31 bits reach")
{
    struct shmq_columns_layout layout;

    CHECK(shmq_columns_lay_out(&layout, 1, INT32_MAX, INT32_MAX));
    CHECK(!shmq_columns_lay_out(&layout, 1, (uint64_t)INT32_MAX + 1, 0));
    CHECK(!shmq_columns_lay_out(&layout, 1, 0, (uint64_t)INT32_MAX + 1));
    CHECK(!shmq_columns_lay_out(&layout, 1, UINT64_MAX, 0));
    CHECK(!shmq_columns_lay_out(&layout, UINT32_MAX, 0, 0));
}

TEST("a block that was cut, or made longer, is none")
{
    uint64_t size = build(block, 9, 9);
    struct shmq_columns_layout layout;

    for (uint64_t less = 0; less < size; less++) {
        unsigned char *exact = malloc(less ? less : 1); /* the sanitizer sees its end */

        memcpy(exact, block, less);
        CHECK(!shmq_columns_read(exact, less, &layout));
        free(exact);
    }
    CHECK(!shmq_columns_read(block, size + 8, &layout));
}

/* A value that is wrong in an array of the block. */
static void spoil(enum shmq_column which, uint32_t at, int64_t value, size_t width)
{
    uint64_t size = build(block, 9, 9);
    struct shmq_columns_layout layout;

    CHECK(shmq_columns_read(block, size, &layout));
    memcpy(block + layout.offset[which] + at * width, &value, width);
    CHECK(!shmq_columns_read(block, size, &layout));
}

TEST("offsets that fall, leave the block or do not begin at 0 are refused, and so are states")
{
    for (enum shmq_column which = SHMQ_COLUMN_BODY_OFFSETS; which <= SHMQ_COLUMN_META_OFFSETS;
         which += 2) {
        spoil(which, 0, 1, 4);
        spoil(which, 0, -1, 4);
        spoil(which, 4, 1 << 20, 4);
        spoil(which, 4, -5, 4);
        spoil(which, 4, INT32_MIN, 4);
        spoil(which, 9, 1 << 20, 4);
        spoil(which, 9, 0, 4);
    }
    spoil(SHMQ_COLUMN_STATE, 3, 0, 1);
    spoil(SHMQ_COLUMN_STATE, 3, 5, 1);
    spoil(SHMQ_COLUMN_REASON, 8, 4, 1);
}

TEST("any bytes at all are read without leaving them")
{
    struct chance chance = chance_of(77);
    uint64_t size = build(block, 12, 12);
    struct shmq_columns_layout layout;

    for (int round = 0; round < 20000; round++) {
        unsigned char *copy = malloc(size);

        memcpy(copy, block, size);
        for (uint64_t n = 1 + chance_below(&chance, 3); n; n--)
            copy[chance_below(&chance, chance_below(&chance, 2) ? 32 : size)] = (unsigned char)
                chance_next(&chance);
        if (shmq_columns_read(copy, size, &layout))
            CHECK_EQ(layout.size, size);
        free(copy);
    }
}
