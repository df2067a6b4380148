/* The records of a stream's segment file: what is written is passed, and nothing else is. */
#include "harness.h"

#include "base/crc32c.h"
#include "file/record.h"
#include "file/stream_segment.h"

#include <stdlib.h>
#include <string.h>

#define ENTRY 10u
#define HEAD 48u

static const struct shmq_stream_segment_salts SALTS = {.file = 0x5EED, .entries = 0xCAFE};

static _Alignas(8) unsigned char file[1 << 15];
static size_t length;

static void store(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static void seal(unsigned char *at, size_t size)
{
    uint32_t crc = shmq_crc32c(SALTS.entries, at, 4);

    store(at + 4, shmq_crc32c(crc, at + 8, size - 8), 4);
}

/* An entry of `size` bytes of value, at the end of the file. */
static void entry(uint64_t offset, uint32_t count, int64_t time, uint32_t size)
{
    unsigned char *at = file + length;
    size_t whole = (HEAD + size + 7) & ~7ul;

    memset(at, 0, whole);
    store(at, (whole - 8) / 8, 4);
    at[8] = ENTRY;
    store(at + 12, count, 4);
    store(at + 16, offset, 8);
    store(at + 24, (uint64_t)time, 8);
    store(at + 40, size, 4);
    memset(at + HEAD, (int)offset, size);
    seal(at, whole);
    length += whole;
}

/* A commit of `count` entries from `first` on. */
static void commit(uint64_t first, uint32_t count)
{
    size_t begin = length;
    struct shmq_record r = {
        .type = SHMQ_R_BATCH, .batch = first, .last_seq = first + count, .wall = 1};

    length += SHMQ_BATCH_BYTES;
    for (uint32_t n = 0; n < count; n++)
        entry(first + n, 1, (int64_t)(first + n) * 10, 20 + 3 * n);
    r.bytes = length - begin - SHMQ_BATCH_BYTES;
    r.crc = shmq_crc32c(0, file + begin + SHMQ_BATCH_BYTES, r.bytes);
    shmq_record_write(file + begin, SALTS.file, &r);
}

static struct shmq_stream_segment all(void)
{
    return (struct shmq_stream_segment){
        .time = INT64_MIN, .stop_offset = UINT64_MAX, .stop_time = INT64_MAX, .verify = true};
}

static void make(void)
{
    length = 0;
    memset(file, 0, sizeof file);
    commit(0, 5);
    commit(5, 1);
    commit(6, 4);
}

TEST("a walk passes all entries, and the records between them")
{
    struct shmq_stream_segment w = all();

    make();
    CHECK_EQ(shmq_stream_segment_walk(file, sizeof file, SALTS, &w), SHMQ_STREAM_SEGMENT_END);
    CHECK_EQ(w.at, length);
    CHECK_EQ(w.offset, 10);
    CHECK_EQ(w.time, 90);
    CHECK_EQ(w.records, 10);
}

TEST("it stops at an offset, at a time, and where it is enough")
{
    struct shmq_stream_segment w = all();

    make();
    w.stop_offset = 6, w.stop_time = INT64_MIN;
    CHECK_EQ(shmq_stream_segment_walk(file, sizeof file, SALTS, &w), SHMQ_STREAM_SEGMENT_STOP);
    CHECK_EQ(w.offset, 6);
    CHECK_EQ(w.records, 6);
    w = all(), w.stop_offset = 0, w.stop_time = 71;
    CHECK_EQ(shmq_stream_segment_walk(file, sizeof file, SALTS, &w), SHMQ_STREAM_SEGMENT_STOP);
    CHECK_EQ(w.offset, 8);
    w = all(), w.most_bytes = 1;
    CHECK_EQ(shmq_stream_segment_walk(file, sizeof file, SALTS, &w), SHMQ_STREAM_SEGMENT_STOP);
    CHECK_EQ(w.records, 1);
    w = all(), w.most = 7;
    CHECK_EQ(shmq_stream_segment_walk(file, sizeof file, SALTS, &w), SHMQ_STREAM_SEGMENT_STOP);
    CHECK_EQ(w.records, 7);
    CHECK_EQ(w.offset, 7);
}

TEST("an entry that cannot come next is damage: an offset, a time, a count, a checksum")
{
    for (int what = 0; what < 5; what++) {
        struct shmq_stream_segment w = all();
        size_t at;

        length = 0;
        memset(file, 0, sizeof file);
        entry(4, 2, 10, 8);
        at = length;
        entry(what == 0 ? 7 : 6, what == 1 ? 0 : 1, what == 2 ? 9 : 10, 8);
        if (what == 3)
            file[at + HEAD] ^= 1;
        if (what == 4)
            store(file + at, 1u << 20, 4);
        CHECK_EQ(shmq_stream_segment_walk(file, sizeof file, SALTS, &w),
                 SHMQ_STREAM_SEGMENT_DAMAGED);
        CHECK_EQ(w.at, at);
        CHECK_EQ(w.offset, 6);
    }
}

TEST("behind damage the next whole entry is found, and none that cannot come there")
{
    struct shmq_stream_segment w = all();
    size_t begins[4];

    length = 0;
    memset(file, 0, sizeof file);
    for (int n = 0; n < 4; n++) {
        begins[n] = length;
        entry(4 + (uint64_t)n, 1, 10 * n, 20);
    }
    file[begins[1] + HEAD] ^= 1;
    w.at = begins[1] + 8, w.offset = 5, w.time = 0;
    CHECK(shmq_stream_segment_find(file, length, SALTS, &w));
    CHECK_EQ(w.at, begins[2]);
    CHECK_EQ(w.offset, 6);
    CHECK_EQ(w.time, 20);
    w = all(), w.offset = 7;
    CHECK(shmq_stream_segment_find(file, length, SALTS, &w));
    CHECK_EQ(w.at, begins[3]);
    w = all(), w.offset = 5, w.stop_offset = 6;
    CHECK(!shmq_stream_segment_find(file, length, SALTS, &w));
    w = all(), w.time = 31;
    CHECK(!shmq_stream_segment_find(file, length, SALTS, &w));
    w = all(), w.at = begins[3];
    CHECK(!shmq_stream_segment_find(file, length - 8, SALTS, &w));
}

TEST("a commit counts as a whole, and one that is not whole is torn only at the end")
{
    for (size_t at = 0; at < 1000; at += 7) {
        struct shmq_stream_segment_whole w = {.time = INT64_MIN};
        enum shmq_stored_run how;
        size_t last;

        make();
        shmq_stream_segment_check(file, sizeof file, 0, SALTS, &w);
        CHECK_EQ(w.offset, 10);
        CHECK_EQ(w.batches, 3);
        last = w.last_batch == 6 ? length : 0;
        CHECK_EQ(w.end, last);
        if (at >= length)
            break;
        file[at] ^= 0x40;
        w = (struct shmq_stream_segment_whole){.time = INT64_MIN};
        how = shmq_stream_segment_check(file, sizeof file, 0, SALTS, &w);
        CHECK(how == (w.offset == 6 ? SHMQ_STREAM_SEGMENT_TORN : SHMQ_STREAM_SEGMENT_DAMAGED));
        CHECK(w.offset == 0 || w.offset == 5 || w.offset == 6);
    }
}

TEST("a check and a walk find the same damage at the same byte")
{
    size_t same = 0;

    make();
    for (size_t at = 0; at < length; at++) {
        struct shmq_stream_segment_whole whole = {.time = INT64_MIN};
        struct shmq_stream_segment w = all();

        file[at] ^= 4;
        if (shmq_stream_segment_check(file, length, 0, SALTS, &whole) != SHMQ_STREAM_SEGMENT_END &&
            shmq_stream_segment_walk(file, length, SALTS, &w) == SHMQ_STREAM_SEGMENT_DAMAGED) {
            CHECK_EQ(whole.damage, w.at);
            same++;
        }
        file[at] ^= 4;
    }
    CHECK_EQ(same, length);
}

TEST("a file that is checked in pieces is the same as one checked at once")
{
    make();
    for (size_t at = 0; at <= length; at++) {
        struct shmq_stream_segment_whole once = {.time = INT64_MIN};
        struct shmq_stream_segment_whole parts = {.time = INT64_MIN, .most = 1};
        enum shmq_stored_run how;
        int calls = 1;

        file[at] ^= at < length;
        for (; (how = shmq_stream_segment_check(file, length, 0, SALTS, &parts)) ==
               SHMQ_STREAM_SEGMENT_STOP;
             calls++)
            CHECK(parts.more);
        CHECK_EQ(how, shmq_stream_segment_check(file, length, 0, SALTS, &once));
        CHECK(parts.end == once.end && parts.offset == once.offset && !parts.more);
        CHECK(parts.batches == once.batches && parts.records == once.records);
        CHECK(parts.damage == once.damage && parts.time == once.time);
        CHECK(at < length || calls == 3);
        file[at] ^= at < length;
    }
}

TEST("the entries alone are what is left without the records between them")
{
    static unsigned char copy[sizeof file];
    struct shmq_stream_segment w = all();
    size_t size;

    make();
    size = shmq_stream_segment_entries(file, length, copy);
    CHECK_EQ(size, length - 3 * SHMQ_BATCH_BYTES);
    CHECK_EQ(shmq_stream_segment_walk(copy, size, SALTS, &w), SHMQ_STREAM_SEGMENT_END);
    CHECK_EQ(w.offset, 10);
    CHECK_EQ(shmq_stream_segment_entries(file + SHMQ_BATCH_BYTES, 100, copy), 72);
}

TEST("whatever the bytes are, nothing behind them is read")
{
    struct chance chance = chance_of(11);

    for (int n = 0; n < 3000; n++) {
        struct shmq_stream_segment w = all();
        struct shmq_stream_segment_whole whole = {.time = INT64_MIN};
        unsigned char *exact;
        size_t size;

        make();
        size = chance_below(&chance, length + 1);
        exact = malloc(size ? size : 1);
        CHECK(exact);
        memcpy(exact, file, size);
        for (uint64_t flips = chance_below(&chance, 9); flips && size; flips--)
            exact[chance_below(&chance, size)] = (unsigned char)chance_next(&chance);
        w.verify = chance_below(&chance, 2);
        shmq_stream_segment_walk(exact, size, SALTS, &w);
        CHECK(w.at <= size);
        shmq_stream_segment_check(exact, size, 0, SALTS, &whole);
        CHECK(whole.end <= size);
        CHECK(whole.offset <= 10);
        free(exact);
    }
}
