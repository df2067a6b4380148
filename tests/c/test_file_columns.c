/* Messages of files as columns: all of them, those within limits, block by block. */
#include "base/crc32c.h"
#include "file/replay.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#define SALT 5u
#define COUNT 100u

static unsigned char file[1 << 16];
static _Alignas(8) unsigned char block[1 << 16];
static struct shmq_columns_layout layout;

static uint64_t seq_at(uint32_t n)
{
    return ((const uint64_t *)(block + layout.offset[SHMQ_COLUMN_SEQUENCE]))[n];
}

/* Message n was put at n ms, and has n % 10 bytes; 7 is delayed and 9 is dead. */
static size_t write_file(void)
{
    unsigned char *at = file + SHMQ_BATCH_BYTES;
    struct shmq_record head = {.type = SHMQ_R_BATCH, .batch = 1, .wall = 1};

    for (uint64_t n = 1; n <= COUNT; n++) {
        struct shmq_record put = {.type = SHMQ_R_PUT,
                                  .seq = n,
                                  .put_at = (int64_t)n * 1000000,
                                  .body = "0123456789",
                                  .body_bytes = n % 10,
                                  .meta = "\x80",
                                  .meta_bytes = n % 2,
                                  .priority = 3,
                                  .codec = 2,
                                  .deliveries = 4};

        if (n == 7) {
            put.flags = SHMQ_R_DELAYED | SHMQ_R_TTL;
            put.until = 5000;
            put.expires = 6000;
        }
        if (n == 9) {
            put.flags = SHMQ_R_DEAD;
            put.reason = 2;
            put.dead_at = 8000;
        }
        at = shmq_record_write(at, SALT, &put);
    }
    head.bytes = (uint64_t)(at - file - SHMQ_BATCH_BYTES);
    head.crc = shmq_crc32c(0, file + SHMQ_BATCH_BYTES, head.bytes);
    shmq_record_write(file, SALT, &head);
    return (size_t)(at - file);
}

static void replay(struct shmq_replay *r)
{
    struct shmq_found found;
    size_t size = write_file();

    shmq_replay_begin(r, false, 0, UINT64_MAX);
    CHECK_EQ(shmq_replay_feed(r, file, size, 0, SALT, 1, size, true, &found), SHMQ_FED_OK);
    CHECK(shmq_replay_sort(r, 0));
    CHECK_EQ(r->live.count, COUNT);
}

static struct shmq_file_columns everything(void)
{
    return (struct shmq_file_columns){.most_seq = UINT64_MAX,
                                      .least_put_at = INT64_MIN,
                                      .most_put_at = INT64_MAX,
                                      .max_bytes = sizeof block};
}

static uint32_t extract(const struct shmq_replay *r, struct shmq_file_columns e, uint64_t *at)
{
    uint64_t begin = *at;
    struct shmq_columns c;

    CHECK(shmq_file_columns_count(r, &e, at, r->live.count));
    CHECK(shmq_columns_lay_out(&layout, e.count, e.body_bytes, e.meta_bytes));
    CHECK(layout.size <= sizeof block);
    shmq_columns_begin(&c, block, &layout);
    shmq_file_columns_copy(r, &e, begin, *at, &c);
    CHECK_EQ(c.count, e.count);
    CHECK(shmq_columns_read(block, shmq_columns_end(&c), &layout));
    return layout.count;
}

TEST("every message is a row, as it is now")
{
    struct shmq_replay r;
    uint64_t at = 0;
    const uint8_t *states;
    const int64_t *put_at;

    replay(&r);
    CHECK_EQ(extract(&r, everything(), &at), COUNT);
    CHECK_EQ(at, COUNT);
    states = block + layout.offset[SHMQ_COLUMN_STATE];
    put_at = (const int64_t *)(block + layout.offset[SHMQ_COLUMN_PUT_AT]);
    for (uint32_t n = 0; n < COUNT; n++) {
        const int32_t *offsets = (const int32_t *)(block + layout.offset[SHMQ_COLUMN_BODY_OFFSETS]);

        CHECK_EQ(seq_at(n), n + 1);
        CHECK_EQ(put_at[n], (n + 1) * 1000);
        CHECK_EQ(offsets[n + 1] - offsets[n], (n + 1) % 10);
        CHECK(!memcmp(block + layout.offset[SHMQ_COLUMN_BODIES] + offsets[n], "0123456789",
                      (n + 1) % 10));
        CHECK_EQ(states[n], n == 6 ? SHMQ_IS_DELAYED : n == 8 ? SHMQ_IS_DYING : SHMQ_IS_READY);
    }
    CHECK_EQ(((const int64_t *)(block + layout.offset[SHMQ_COLUMN_VISIBLE_AT]))[6], 5);
    CHECK_EQ(((const int64_t *)(block + layout.offset[SHMQ_COLUMN_EXPIRES]))[6], 6);
    CHECK_EQ(((const int64_t *)(block + layout.offset[SHMQ_COLUMN_DEAD_AT]))[8], 8);
    CHECK_EQ((block + layout.offset[SHMQ_COLUMN_REASON])[8], 2);
    shmq_replay_end(&r);
}

TEST("limits of numbers and times are kept, both ends included")
{
    struct shmq_replay r;
    struct shmq_file_columns e = everything();
    uint64_t at = 0;

    replay(&r);
    e.least_seq = 10;
    e.most_seq = 20;
    CHECK_EQ(extract(&r, e, &at), 11);
    CHECK(seq_at(0) == 10 && seq_at(10) == 20);
    CHECK_EQ(at, COUNT);
    e.least_put_at = 15000;
    e.most_put_at = 17000;
    at = 0;
    CHECK_EQ(extract(&r, e, &at), 3);
    CHECK(seq_at(0) == 15 && seq_at(2) == 17);
    e.least_seq = 18;
    at = 0;
    CHECK_EQ(extract(&r, e, &at), 0);
    shmq_replay_end(&r);
}

TEST("blocks one after the other have every message once")
{
    struct shmq_replay r;
    struct shmq_file_columns e = everything();

    replay(&r);
    for (e.max_bytes = 1; e.max_bytes < 4000; e.max_bytes += 333) {
        uint64_t at = 0;
        uint32_t rows = 0;

        while (at < COUNT) {
            uint32_t count = extract(&r, e, &at);

            CHECK(count >= 1 && (count == 1 || layout.size <= e.max_bytes));
            CHECK_EQ(seq_at(0), rows + 1);
            rows += count;
        }
        CHECK_EQ(rows, COUNT);
    }
    shmq_replay_end(&r);
}
