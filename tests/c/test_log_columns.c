/* Records as columns and back: what goes in comes out, and no wrong bytes are followed. */
#include "harness.h"

#include "stream/entry.h"
#include "stream/columns.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 5u

static const int32_t value_ends[ROWS + 1] = {0, 3, 3, 6, 10, 11};
static const int32_t key_ends[ROWS + 1] = {0, 1, 1, 1, 4, 4};
static const unsigned char values[] = "onetwoxfour5", keys[] = "abcd", has_key = 0x1Bu;
static const unsigned char codecs[ROWS] = {0, 1, 2, 3, 4};

static _Alignas(8) unsigned char packed[1 << 10], block[1 << 10];
static uint64_t size;

static struct shmq_log_rows rows(void)
{
    return (struct shmq_log_rows){
        .values = {.ends = value_ends, .bytes = values, .size = 11},
        .keys = {.ends = key_ends, .bytes = keys, .size = 4, .there = {.at = &has_key}},
        .codecs = codecs};
}

/* All rows as entries with the offsets from 10 on. */
static struct shmq_log_block pack(void)
{
    struct shmq_log_rows r = rows();
    uint32_t end = ROWS;
    uint64_t at = 0, next;

    size = shmq_log_packed(&r, 0, &end, UINT64_MAX);
    CHECK_EQ(end, ROWS);
    shmq_log_pack(&r, 0, end, packed);
    for (uint64_t offset = 10; at < size; at += next) {
        struct shmq_entry e;

        CHECK_EQ(shmq_entry_read(packed + at, size - at, 0, true, &e, &next), SHMQ_E_OK);
        e.offset = offset++;
        e.timestamp = -1500;
        shmq_entry_write(block + at, 0, &e);
    }
    return (struct shmq_log_block){.bytes = block, .size = size, .first = 0, .end = UINT64_MAX};
}

TEST("rows come back as they were")
{
    struct shmq_log_block b = pack();
    struct shmq_log_sums sums;
    int64_t offsets[ROWS], times[ROWS];
    unsigned char kinds[ROWS], texts[11], names[4], none[1], bits = 0;
    int32_t ends[3][ROWS + 1];
    struct shmq_log_arrays to = {offsets, times, kinds, ends[0], ends[1],
                                 ends[2], texts, names, none,    &bits};

    CHECK(shmq_log_measure(&b, &sums));
    CHECK(sums.keyed && !sums.compressed);
    CHECK_EQ(sums.count, ROWS);
    CHECK_EQ(sums.value_bytes, 11);
    CHECK_EQ(sums.key_bytes, 4);
    CHECK_EQ(sums.header_bytes, 0);
    shmq_log_fill(&b, &to);
    CHECK_EQ(memcmp(texts, values, 11), 0);
    CHECK_EQ(memcmp(names, keys, 4), 0);
    CHECK_EQ(memcmp(ends[0], value_ends, sizeof value_ends), 0);
    CHECK_EQ(memcmp(ends[1], key_ends, sizeof key_ends), 0);
    CHECK_EQ(memcmp(kinds, codecs, sizeof codecs), 0);
    CHECK_EQ(bits, has_key);
    CHECK_EQ(offsets[4], 14);
    CHECK_EQ(times[0], -2); /* what 1.5 us before 1970 are in */
}

TEST("only offsets that are meant are taken")
{
    struct shmq_log_block b = pack();
    struct shmq_log_sums sums;

    b.first = 11;
    b.end = 13;
    CHECK(shmq_log_measure(&b, &sums));
    CHECK_EQ(sums.count, 2);
    CHECK_EQ(sums.value_bytes, 3);
}

TEST("a block ends before it is too large")
{
    struct shmq_log_rows r = rows();
    uint32_t end = ROWS;

    CHECK_EQ(shmq_log_packed(&r, 0, &end, 120), 56 + 48);
    CHECK_EQ(end, 2);
    end = ROWS;
    CHECK_EQ(shmq_log_packed(&r, 3, &end, 1), 56); /* one row, however large */
    CHECK_EQ(end, 4);
}

TEST("ends that contradict their texts are refused")
{
    static const int32_t beyond[] = {0, 12}, back[] = {3, 1}, below[] = {-1, 2};
    static const int32_t *const wrong[] = {beyond, back, below};

    for (unsigned i = 0; i < 3; i++) {
        struct shmq_log_rows r = rows();
        uint32_t end = 1;

        r.values.ends = wrong[i];
        CHECK_EQ(shmq_log_packed(&r, 0, &end, UINT64_MAX), 0);
    }
}

TEST("bytes that are no entries are refused, and not followed")
{
    struct shmq_log_block b = pack();
    struct shmq_log_sums sums;
    unsigned char *whole = malloc(size);

    memcpy(whole, block, size);
    b.size = size - 8;
    CHECK(!shmq_log_measure(&b, &sums));
    b.size = size;
    for (uint64_t bit = 0; bit < size * 8; bit++) {
        block[bit / 8] ^= (unsigned char)(1u << bit % 8);
        shmq_log_measure(&b, &sums); /* whatever it says, it looks at nothing else */
        memcpy(block, whole, size);
    }
    free(whole);
}
