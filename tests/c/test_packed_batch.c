/* Packed batches: what their end says, whoever wrote it. */
#include "harness.h"

#include "queue/packed_batch.h"

#include <stdlib.h>
#include <string.h>

static void write_little(unsigned char *to, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(number >> 8 * i);
}

/* Bytes of exactly that size, so that a read behind them is seen; to be freed. */
static unsigned char *exactly(const void *bytes, uint64_t size)
{
    unsigned char *made = malloc(size ? size : 1);

    CHECK(made);
    memcpy(made, bytes, size);
    return made;
}

/* A body of `records` bytes of records, `lengths`, and the trailer; read, and freed. */
static bool read_body(uint64_t records, const uint32_t *lengths, uint32_t listed, uint32_t count,
                      uint32_t size, struct shmq_packed *packed)
{
    uint64_t bytes = records + 4ull * listed + SHMQ_PACKED_TRAILER;
    unsigned char *body = calloc(1, bytes);
    bool good;

    CHECK(body);
    for (uint32_t i = 0; i < listed; i++)
        write_little(body + records + 4ull * i, lengths[i]);
    write_little(body + bytes - 8, count);
    write_little(body + bytes - 4, size);
    good = shmq_packed_read(body, bytes, packed);
    if (good && packed->lengths)
        CHECK(packed->lengths == body + records);
    for (uint32_t i = 0; good && i < packed->count && i < listed; i++)
        CHECK_EQ(shmq_packed_length(packed, i), lengths[i]);
    free(body);
    return good;
}

TEST("records of one size need no lengths")
{
    struct shmq_packed packed;

    CHECK(read_body(24, NULL, 0, 3, 8, &packed));
    CHECK_EQ(packed.count, 3);
    CHECK_EQ(packed.bytes, 24);
    CHECK(!packed.lengths);
    CHECK_EQ(shmq_packed_length(&packed, 2), 8);
    CHECK(read_body(5, NULL, 0, 1, 5, &packed));
    CHECK(read_body(5, NULL, 0, 5, 1, &packed));
}

TEST("records of sizes of their own have lengths, which may be 0 and stand anywhere")
{
    struct shmq_packed packed;

    CHECK(read_body(13, (uint32_t[]){5, 0, 7, 1}, 4, 4, SHMQ_PACKED_VARIES, &packed));
    CHECK_EQ(packed.bytes, 13);
    CHECK_EQ(packed.count, 4);
    CHECK(read_body(0, (uint32_t[]){0, 0, 0}, 3, 3, SHMQ_PACKED_VARIES, &packed));
    CHECK_EQ(packed.bytes, 0);
}

TEST("a batch may be empty")
{
    struct shmq_packed packed;

    CHECK(read_body(0, NULL, 0, 0, 8, &packed));
    CHECK_EQ(packed.count, 0);
    CHECK(read_body(0, NULL, 0, 0, 0, &packed));
    CHECK(read_body(0, NULL, 0, 0, SHMQ_PACKED_VARIES, &packed));
    CHECK_EQ(packed.bytes, 0);
}

TEST("what is too short for a trailer is not a batch")
{
    struct shmq_packed packed;
    unsigned char zeros[8] = {0};

    for (uint64_t bytes = 0; bytes < SHMQ_PACKED_TRAILER; bytes++) {
        unsigned char *body = exactly(zeros, bytes);

        CHECK(!shmq_packed_read(body, bytes, &packed));
        free(body);
    }
}

TEST("an end that does not add up is not a batch")
{
    struct shmq_packed packed;
    uint32_t many = UINT32_MAX;

    CHECK(!read_body(24, NULL, 0, 3, 7, &packed));
    CHECK(!read_body(24, NULL, 0, 4, 8, &packed));
    CHECK(!read_body(24, NULL, 0, 0, 0, &packed));
    CHECK(!read_body(24, NULL, 0, 0, SHMQ_PACKED_VARIES, &packed));
    CHECK(!read_body(13, (uint32_t[]){5, 0, 7}, 3, 3, SHMQ_PACKED_VARIES, &packed));
    CHECK(!read_body(13, (uint32_t[]){5, 0, 7, 1}, 4, 3, SHMQ_PACKED_VARIES, &packed));
    CHECK(!read_body(13, (uint32_t[]){5, 0, 7, 2}, 4, 4, SHMQ_PACKED_VARIES, &packed));
    CHECK(!read_body(4, (uint32_t[]){2, UINT32_MAX, 3}, 3, 3, SHMQ_PACKED_VARIES, &packed));
    CHECK(!read_body(24, NULL, 0, many, many - 1, &packed)); /* a product that would overflow */
    CHECK(!read_body(24, NULL, 0, 1u << 31, 2, &packed));
    CHECK(!read_body(0, NULL, 0, many, SHMQ_PACKED_VARIES, &packed));
    CHECK(!read_body(0, NULL, 0, 1u << 30, SHMQ_PACKED_VARIES, &packed));
}

TEST("records that would cost more to read than their bytes are no batch")
{
    struct shmq_packed packed;

    CHECK(!read_body(0, NULL, 0, 1, 0, &packed));
    CHECK(!read_body(0, NULL, 0, UINT32_MAX, 0, &packed));
}

TEST("whatever stands at the end of a body, nothing is read outside of it")
{
    struct chance chance = chance_of(51);
    struct shmq_packed packed;
    uint32_t good = 0;

    for (int round = 0; round < 200000; round++) {
        uint64_t bytes = chance_below(&chance, 64), sum = 0;
        unsigned char noise[64], *body;

        for (uint64_t i = 0; i < sizeof noise; i++)
            noise[i] = (unsigned char)(chance_below(&chance, 2) ? chance_below(&chance, 4)
                                                                : chance_next(&chance));
        if (bytes >= 8 && chance_below(&chance, 2))
            write_little(noise + bytes - 4, SHMQ_PACKED_VARIES);
        if (bytes >= 8 && chance_below(&chance, 2))
            write_little(noise + bytes - 8, (uint32_t)chance_below(&chance, 8));
        for (uint64_t at = bytes; at >= 12 && at + 20 > bytes; at -= 4)
            write_little(noise + at - 12, (uint32_t)chance_below(&chance, 12));
        body = exactly(noise, bytes);
        if (shmq_packed_read(body, bytes, &packed)) {
            good++;
            CHECK(packed.bytes <= bytes - SHMQ_PACKED_TRAILER);
            CHECK(packed.count <= bytes);
            for (uint32_t i = 0; i < packed.count; i++)
                sum += shmq_packed_length(&packed, i);
            CHECK_EQ(sum, packed.bytes);
        }
        free(body);
    }
    CHECK(good > 100);
}
