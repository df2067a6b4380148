/* CRC-32C and SipHash against values from elsewhere. */
#include "base/crc32c.h"
#include "harness.h"
#include "base/siphash.h"

#include <string.h>

TEST("the CRC-32C of RFC 3720, appendix B.4")
{
    unsigned char bytes[32];

    CHECK_EQ(shmq_crc32c(0, "123456789", 9), 0xE3069283);
    memset(bytes, 0, sizeof bytes);
    CHECK_EQ(shmq_crc32c(0, bytes, sizeof bytes), 0x8A9136AA);
    memset(bytes, 0xFF, sizeof bytes);
    CHECK_EQ(shmq_crc32c(0, bytes, sizeof bytes), 0x62A8AB43);
    for (unsigned char i = 0; i < 32; i++)
        bytes[i] = i;
    CHECK_EQ(shmq_crc32c(0, bytes, sizeof bytes), 0x46DD794E);
}

TEST("a CRC-32C can be taken in pieces")
{
    for (size_t cut = 0; cut <= 9; cut++)
        CHECK_EQ(shmq_crc32c(shmq_crc32c(0, "123456789", cut), &"123456789"[cut], 9 - cut),
                 0xE3069283);
    CHECK_EQ(shmq_crc32c(0, "", 0), 0);
}

/* A bit at a time: the definition. */
static uint32_t by_bits(uint32_t crc, const unsigned char *at, size_t size)
{
    for (crc = ~crc; size--; at++) {
        crc ^= *at;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1));
    }
    return ~crc;
}

TEST("a CRC-32C is the same by bits, tables, instruction and products, wherever it begins")
{
    static unsigned char bytes[10000], copy[sizeof bytes + 2];
    struct chance chance = chance_of(2);

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)chance_next(&chance);
    for (int turn = 0; turn < 2000; turn++) {
        size_t at = chance_below(&chance, 17);
        size_t size = turn < 300 ? (size_t)turn : chance_below(&chance, sizeof bytes - at);
        uint32_t before = (uint32_t)chance_next(&chance);
        uint32_t crc = by_bits(before, bytes + at, size);

        CHECK_EQ(shmq_crc32c(before, bytes + at, size), crc);
        CHECK_EQ(shmq_crc32c_striped(before, bytes + at, size), crc);
        CHECK_EQ(shmq_crc32c_portable(before, bytes + at, size), crc);
        memset(copy, 0xA5, sizeof copy);
        CHECK_EQ(shmq_crc32c_copy(before, copy + 1, bytes + at, size), crc);
        CHECK(!memcmp(copy + 1, bytes + at, size) && copy[0] == 0xA5 && copy[size + 1] == 0xA5);
    }
}

TEST("a CRC-32C of each length around those at which another way begins")
{
    static unsigned char bytes[3200], copy[sizeof bytes];
    uint32_t crc = 0;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t size = 0; size < sizeof bytes; size++) {
        CHECK_EQ(shmq_crc32c(0, bytes, size), crc);
        CHECK_EQ(shmq_crc32c_striped(0, bytes, size), crc);
        CHECK_EQ(shmq_crc32c_copy(0, copy, bytes, size), crc);
        CHECK(!memcmp(copy, bytes, size));
        crc = by_bits(crc, bytes + size, 1);
    }
}

/* Computed with OpenSSL's SIPHASH (size 16) under the key that siphash.c derives. */
static void expect(uint64_t key, const void *bytes, size_t size, uint64_t one, uint64_t two)
{
    uint64_t hash[2];

    shmq_siphash(key, bytes, size, hash);
    CHECK_EQ(hash[0], one);
    CHECK_EQ(hash[1], two);
    CHECK_EQ(shmq_siphash_first(key, bytes, size), one);
}

TEST("the SipHash of another implementation")
{
    unsigned char bytes[64];

    for (unsigned char i = 0; i < 64; i++)
        bytes[i] = i;
    expect(0, "", 0, 0xdea9117f74cc1b26, 0xa7fe2d3497fa7f6a);
    expect(1, "a", 1, 0xd6b5b630bb9d1afa, 0x67f48b8ef51f1d64);
    expect(0x0706050403020100, bytes, 15, 0x6ca9315a6a56b109, 0xebd6f21252b0eff4);
    expect(0xdeadbeefcafef00d, bytes, 64, 0xbc67779d3aba613d, 0xe9558aa5f3f86638);
    expect(42, "N12345N12345N12345N12345N12345N12345N12345", 42, 0x18cbd76ee34ce5c8,
           0xca50a6e025b5c319);
}
