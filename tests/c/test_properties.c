/* The properties of a message: read, applied, and written with the codec. */
#include "fixture.h"

#include <string.h>

#include "queue/properties.h"

#define MAP(...) \
    (const unsigned char[]){__VA_ARGS__}, sizeof(const unsigned char[]) { __VA_ARGS__ }

static const char *fault_of(const unsigned char *at, size_t size)
{
    struct shmq_properties properties;

    return shmq_properties_read(at, (uint32_t)size, &properties);
}

/* What is out of range in a queue of the default options. */
static const char *range_of(const unsigned char *at, size_t size)
{
    struct shmq_queue *q = new_queue(&(struct shmq_options){0});
    struct shmq_properties properties;
    struct shmq_put put = {0};
    uint64_t hash[2];

    CHECK(!shmq_properties_read(at, (uint32_t)size, &properties));
    return shmq_properties_apply(q, &properties, &put, hash);
}

TEST("known keys are of their type")
{
    CHECK(!fault_of(MAP(0x81, 0xA3, 'p', 'r', 'i', 1)));
    CHECK(fault_of(MAP(0x81, 0xA3, 'p', 'r', 'i', 0xA1, '1')));
    CHECK(fault_of(MAP(0x81, 0xA3, 't', 't', 'l', 0xC0)));
    CHECK(fault_of(MAP(0x81, 0xA5, 'd', 'e', 'l', 'a', 'y', 0xCA, 0, 0, 0, 0)));
    CHECK(fault_of(MAP(0x81, 0xA5, 'g', 'r', 'o', 'u', 'p', 1)));
    CHECK(fault_of(MAP(0x81, 0xA6, 'd', 'e', 'd', 'u', 'p', 'e', 0xC4, 0)));
    CHECK(fault_of(MAP(0x81, 0xA5, 'c', 'o', 'd', 'e', 'c', 1)));
    CHECK(fault_of(MAP(0x81, 0xA4, 'c', 'o', 'r', 'r', 1)));
    CHECK(fault_of(MAP(0x81, 0xA8, 'r', 'e', 'p', 'l', 'y', '_', 't', 'o', 1)));
    CHECK(fault_of(MAP(0x81, 0xA7, 'h', 'e', 'a', 'd', 'e', 'r', 's', 0x90)));
    CHECK(!fault_of(MAP(0x82, 0xA3, 'o', 'w', 'n', 0x90, 7, 0xC0)));
}

TEST("a fault of one key is told even if others follow")
{
    CHECK(fault_of(MAP(0x82, 0xA3, 'p', 'r', 'i', 0xC0, 0xA3, 'o', 'w', 'n', 1)));
}

TEST("what is not one map is refused")
{
    CHECK(fault_of(MAP(0x90)));
    CHECK(fault_of(MAP(0x80, 0)));
    CHECK(fault_of(MAP(0x81, 0xA1, 'a')));
    CHECK(fault_of((const unsigned char *)"", 0));
}

TEST("numbers are within the queue's range")
{
    CHECK(!range_of(MAP(0x81, 0xA3, 'p', 'r', 'i', 2)));
    CHECK(range_of(MAP(0x81, 0xA3, 'p', 'r', 'i', 3)));
    CHECK(range_of(MAP(0x81, 0xA3, 'p', 'r', 'i', 0xFF)));
    CHECK(range_of(MAP(0x81, 0xA3, 't', 't', 'l', 0)));
    CHECK(!range_of(MAP(0x81, 0xA3, 't', 't', 'l', 1)));
    CHECK(range_of(MAP(0x81, 0xA5, 'd', 'e', 'l', 'a', 'y', 0xFF)));
    CHECK(!range_of(MAP(0x81, 0xA5, 'd', 'e', 'l', 'a', 'y', 0)));
    CHECK(range_of(MAP(0x81, 0xA5, 'd', 'e', 'l', 'a', 'y', 0xCF, 0xFF, 0, 0, 0, 0, 0, 0, 0)));
}

/* Writes the properties of a message of that codec, and compares them. */
static void check_written(const unsigned char *meta, size_t size, uint8_t codec,
                          const unsigned char *wanted, size_t wanted_size)
{
    unsigned char to[256];
    struct shmq_worded worded = shmq_properties_worded(meta, (uint32_t)size, codec);

    CHECK_EQ(worded.size, wanted_size);
    CHECK_EQ(shmq_properties_write(to, &worded) - to, wanted_size);
    CHECK(!memcmp(to, wanted, wanted_size));
}

TEST("the codec is added to the properties of a message, once")
{
    check_written(NULL, 0, 0, (const unsigned char *)"", 0);
    check_written(NULL, 0, 1, MAP(0x81, 0xA5, 'c', 'o', 'd', 'e', 'c', 0xA4, 't', 'e', 'x', 't'));
    check_written(MAP(0x81, 1, 2), 3,
                  MAP(0x82, 1, 2, 0xA5, 'c', 'o', 'd', 'e', 'c', 0xA4, 'j', 's', 'o', 'n'));
    check_written(MAP(0x81, 0xA5, 'c', 'o', 'd', 'e', 'c', 0xA4, 'j', 's', 'o', 'n'), 3,
                  MAP(0x81, 0xA5, 'c', 'o', 'd', 'e', 'c', 0xA4, 'j', 's', 'o', 'n'));
    check_written(MAP(0x81, 1, 2), SHMQ_CODEC_OTHER, MAP(0x81, 1, 2));
}

TEST("a map of fifteen entries gets another head with the codec")
{
    unsigned char meta[31] = {0x8F}, wanted[64] = {0xDE, 0, 16};

    for (unsigned char i = 1; i < 31; i++)
        meta[i] = wanted[2 + i] = i;
    memcpy(wanted + 33,
           "\xA5"
           "codec"
           "\xA4"
           "text",
           11);
    check_written(meta, sizeof meta, 1, wanted, 44);
}

TEST("bytes that become another message's meanwhile are written in the size that was decided")
{
    static const unsigned char others[][4] = {
        {0x81, 0xA1, 'a', 1}, {0xDF, 0xFF, 0xFF, 0xFF}, {0x80, 0, 0, 0}, {0xA1, 'x', 0, 0}};

    for (size_t before = 0; before < 4; before++)
        for (size_t after = 0; after < 4; after++) {
            unsigned char meta[4], to[64];
            struct shmq_worded worded;

            memcpy(meta, others[before], sizeof meta);
            worded = shmq_properties_worded(meta, sizeof meta, 1);
            memcpy(meta, others[after], sizeof meta);
            CHECK_EQ(shmq_properties_write(to, &worded) - to, worded.size);
        }
}
