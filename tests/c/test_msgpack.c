/* Reading msgpack: every kind of value, and what is not a value. */
#include "harness.h"

#include <stdlib.h>

#include "base/msgpack.h"

#define BYTES(...) \
    (const unsigned char[]){__VA_ARGS__}, sizeof(const unsigned char[]) { __VA_ARGS__ }

/* Reads past one value, out of memory of just that size: whether it is good and all of it. */
static bool is_one(const unsigned char *bytes, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    struct shmq_reader r = {copy, copy + size, false};
    struct shmq_msgpack value;
    bool good;

    CHECK(copy);
    memcpy(copy, bytes, size);
    shmq_msgpack_read(&r, &value);
    shmq_msgpack_skip(&r, &value);
    good = !r.bad && r.at == r.end;
    free(copy);
    return good;
}

static struct shmq_msgpack read_one(const unsigned char *bytes, size_t size)
{
    struct shmq_reader r = {bytes, bytes + size, false};
    struct shmq_msgpack value;

    shmq_msgpack_read(&r, &value);
    CHECK(!r.bad);
    return value;
}

TEST("an int of any size and sign is read")
{
    const int64_t most = INT64_MAX;

    CHECK_EQ(read_one(BYTES(0x7F)).number, 127);
    CHECK_EQ(read_one(BYTES(0xE0)).number, -32);
    CHECK_EQ(read_one(BYTES(0xCC, 0xFF)).number, 255);
    CHECK_EQ(read_one(BYTES(0xCD, 0x12, 0x34)).number, 0x1234);
    CHECK_EQ(read_one(BYTES(0xCE, 0xFF, 0, 0, 1)).number, 0xFF000001);
    CHECK_EQ(read_one(BYTES(0xCF, 0, 0, 0, 1, 0, 0, 0, 0)).number, 1ll << 32);
    CHECK_EQ(read_one(BYTES(0xD0, 0x80)).number, -128);
    CHECK_EQ(read_one(BYTES(0xD1, 0x80, 0)).number, -32768);
    CHECK_EQ(read_one(BYTES(0xD2, 0x80, 0, 0, 0)).number, INT32_MIN);
    CHECK_EQ(read_one(BYTES(0xD3, 0x80, 0, 0, 0, 0, 0, 0, 0)).number, INT64_MIN);
    CHECK_EQ(read_one(BYTES(0xCF, 0xFF, 0, 0, 0, 0, 0, 0, 0)).number, most);
}

TEST("each kind of value is known")
{
    CHECK_EQ(read_one(BYTES(0xC0)).kind, SHMQ_MSGPACK_NIL);
    CHECK_EQ(read_one(BYTES(0xC3)).kind, SHMQ_MSGPACK_BOOL);
    CHECK_EQ(read_one(BYTES(0xCA, 0, 0, 0, 0)).kind, SHMQ_MSGPACK_FLOAT);
    CHECK_EQ(read_one(BYTES(0xCB, 0, 0, 0, 0, 0, 0, 0, 0)).kind, SHMQ_MSGPACK_FLOAT);
    CHECK_EQ(read_one(BYTES(0xA1, 'a')).kind, SHMQ_MSGPACK_STR);
    CHECK_EQ(read_one(BYTES(0xD9, 1, 'a')).count, 1);
    CHECK_EQ(read_one(BYTES(0xDA, 0, 1, 'a')).count, 1);
    CHECK_EQ(read_one(BYTES(0xDB, 0, 0, 0, 1, 'a')).count, 1);
    CHECK_EQ(read_one(BYTES(0xC4, 1, 'a')).kind, SHMQ_MSGPACK_BIN);
    CHECK_EQ(read_one(BYTES(0xC5, 0, 1, 'a')).kind, SHMQ_MSGPACK_BIN);
    CHECK_EQ(read_one(BYTES(0xC6, 0, 0, 0, 1, 'a')).kind, SHMQ_MSGPACK_BIN);
    CHECK_EQ(read_one(BYTES(0xD4, 1, 'a')).kind, SHMQ_MSGPACK_EXT);
    CHECK_EQ(read_one(BYTES(0xC7, 2, 1, 'a', 'b')).count, 2);
    CHECK_EQ(read_one(BYTES(0x91, 1)).kind, SHMQ_MSGPACK_ARRAY);
    CHECK_EQ(read_one(BYTES(0xDC, 0, 1, 1)).count, 1);
    CHECK_EQ(read_one(BYTES(0xDD, 0, 0, 0, 1, 1)).count, 1);
    CHECK_EQ(read_one(BYTES(0x81, 1, 2)).kind, SHMQ_MSGPACK_MAP);
    CHECK_EQ(read_one(BYTES(0xDE, 0, 1, 1, 2)).count, 1);
    CHECK_EQ(read_one(BYTES(0xDF, 0, 0, 0, 1, 1, 2)).count, 1);
}

TEST("a value that is cut off anywhere is bad")
{
    static const unsigned char value[] = {0x82, 0xA3, 'k',  'e',  'y',  0x93, 0x01,
                                          0xCD, 0x01, 0x02, 0xC4, 0x02, 0x00, 0x00,
                                          0xD9, 0x01, 'x',  0xC7, 0x01, 0x05, 0x00};

    CHECK(is_one(value, sizeof value));
    for (size_t size = 0; size < sizeof value; size++)
        CHECK(!is_one(value, size));
}

TEST("the tag that is never used is bad")
{
    CHECK(!is_one(BYTES(0xC1)));
    CHECK(!is_one(BYTES(0x91, 0xC1)));
}

TEST("a count that what is left cannot hold is bad at once")
{
    CHECK(!is_one(BYTES(0xDD, 0xFF, 0xFF, 0xFF, 0xFF, 0)));
    CHECK(!is_one(BYTES(0xDF, 0xFF, 0xFF, 0xFF, 0xFF, 0)));
}

TEST("what is nested too deep is bad")
{
    unsigned char deep[SHMQ_MSGPACK_DEPTH + 1];

    memset(deep, 0x91, sizeof deep);
    deep[SHMQ_MSGPACK_DEPTH] = 0xC0;
    CHECK(is_one(deep, sizeof deep));
    deep[SHMQ_MSGPACK_DEPTH] = 0x90;
    CHECK(!is_one(deep, sizeof deep));
}

TEST("a key is not an array and no map")
{
    CHECK(!is_one(BYTES(0x81, 0x90, 1)));
    CHECK(!is_one(BYTES(0x81, 0x80, 1)));
    CHECK(is_one(BYTES(0x81, 1, 0x90)));
    CHECK(is_one(BYTES(0x82, 1, 0x90, 0xC0, 0x80)));
}

TEST("a str is UTF-8")
{
    CHECK(is_one(BYTES(0xA2, 0xC3, 0xA9)));
    CHECK(is_one(BYTES(0xA3, 0xE2, 0x82, 0xAC)));
    CHECK(is_one(BYTES(0xA4, 0xF0, 0x9F, 0x98, 0x80)));
    CHECK(!is_one(BYTES(0xA1, 0x80)));             /* continues nothing           */
    CHECK(!is_one(BYTES(0xA1, 0xC3)));             /* is cut off                  */
    CHECK(!is_one(BYTES(0xA2, 0xC0, 0x80)));       /* longer than need be         */
    CHECK(!is_one(BYTES(0xA3, 0xE0, 0x80, 0x80)));
    CHECK(!is_one(BYTES(0xA3, 0xED, 0xA0, 0x80))); /* a surrogate                 */
    CHECK(!is_one(BYTES(0xA4, 0xF4, 0x90, 0x80, 0x80))); /* beyond U+10FFFF       */
    CHECK(!is_one(BYTES(0xA4, 0xF0, 0x9F, 0x98, 0x41)));
    CHECK(!is_one(BYTES(0xA1, 0xFF)));
    CHECK(is_one(BYTES(0xC4, 1, 0xFF)));           /* bytes may be anything       */
}

TEST("one map is a map, and nothing else is")
{
    CHECK(shmq_msgpack_is_map(BYTES(0x80)));
    CHECK(shmq_msgpack_is_map(BYTES(0x81, 0xA1, 'a', 0x80)));
    CHECK(!shmq_msgpack_is_map(BYTES(0x80, 0x80)));
    CHECK(!shmq_msgpack_is_map(BYTES(0x90)));
    CHECK(!shmq_msgpack_is_map("", 0));
}

TEST("chance makes nothing be read beyond its end")
{
    struct chance chance = chance_of(20);
    unsigned char bytes[64];

    for (int round = 0; round < 200000; round++) {
        size_t size = chance_below(&chance, sizeof bytes);

        for (size_t i = 0; i < size; i++)
            bytes[i] = (unsigned char)chance_next(&chance);
        (void)is_one(bytes, size);
    }
}

TEST("of a str that is cut off nothing is compared")
{
    const unsigned char cut[] = {0xA5, 'c', 'o'};
    struct shmq_reader r = {cut, cut + sizeof cut, false};
    struct shmq_msgpack value;

    shmq_msgpack_read(&r, &value);
    CHECK(r.bad);
    CHECK(!shmq_msgpack_is(&value, "codec"));
}

TEST("short values are read inline as they are read by the general form")
{
    unsigned char bytes[24];
    uint64_t random = 1;

    for (int round = 0; round < 200000; round++) {
        struct shmq_msgpack inlined, general;
        size_t size = (size_t)round % (sizeof bytes + 1);
        struct shmq_reader a = {bytes, bytes + size, false}, b = a;

        for (size_t i = 0; i < sizeof bytes; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            bytes[i] = (unsigned char)(random >> 56 & (random >> 33 & 7 ? 0x7F : 0xFF));
        }
        bytes[0] = round & 1 ? (unsigned char)(0xA0 | (bytes[0] & 0x1F)) : 0xC4;
        if (!(round & 1))
            bytes[1] &= 0x1F;
        shmq_msgpack_read(&a, &inlined);
        shmq_msgpack_read_any(&b, &general);
        CHECK_EQ(a.bad, b.bad);
        if (a.bad)
            continue;
        CHECK_EQ(a.at - bytes, b.at - bytes);
        CHECK_EQ(inlined.kind, general.kind);
        CHECK_EQ(inlined.count, general.count);
        CHECK_EQ(inlined.bytes - bytes, general.bytes - bytes);
    }
}
