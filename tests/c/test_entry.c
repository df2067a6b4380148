/* An entry is written and read, whatever it carries and however it is cut while it is copied. */
#include "base/crc32c.h"
#include "stream/entry.h"
#include "harness.h"

#include <string.h>

#define SALT 0x12345678u
#define MOST 70000u

static unsigned char carried[MOST];
static uint64_t room[MOST / 8 + 32];

/* Writes an entry over bytes of another one, reads it, and checks all of it. */
static void check_entry(uint32_t value, uint32_t key, uint32_t headers, uint8_t flags)
{
    struct shmq_entry found, e = {
                                 .flags = flags,
                                 .codec = 1,
                                 .count = 1,
                                 .offset = 7,
                                 .timestamp = 9,
                                 .seen = 17,
                                 .producer = 11,
                                 .sequence = 13,
                                 .value_bytes = value,
                                 .key_bytes = key,
                                 .headers_bytes = headers,
                                 .value = carried,
                                 .key = carried + 1,
                                 .headers = carried + 2,
                             };
    unsigned char *at = (unsigned char *)room;
    struct shmq_peeked_entry g;
    uint64_t size, next;
    uint32_t crc;

    memset(room, 0xEE, sizeof room);
    size = (uint64_t)(shmq_entry_write(at, SALT, &e) - at);
    CHECK_EQ(size, shmq_entry_size(flags, value, key, headers));
    CHECK_EQ(at[size], 0xEE);
    crc = shmq_crc32c_portable(SALT, at, 4);
    CHECK_EQ(shmq_entry_word(at) >> 32, shmq_crc32c_portable(crc, at + 8, size - 8));
    CHECK_EQ(shmq_entry_read(at, size, SALT, true, &found, &next), SHMQ_E_OK);
    CHECK_EQ(next, size);
    CHECK(found.value_bytes == value && !memcmp(found.value, carried, value));
    CHECK(found.key_bytes == key && !memcmp(found.key, carried + 1, key));
    CHECK(found.headers_bytes == headers && !memcmp(found.headers, carried + 2, headers));
    CHECK(found.timestamp == 9 && found.seen == (flags & SHMQ_E_SEEN ? 17 : 9));
    shmq_entry_peek(at, size, &g);
    CHECK(g.size == size && g.seen == found.seen);
    for (const unsigned char *pad = found.headers + headers;
         pad < at + size - (flags & SHMQ_E_SEEN ? SHMQ_ENTRY_SEEN : 0); pad++)
        CHECK_EQ(*pad, 0);
}

/* Entries written without checksums have the same bytes once they have them. */
static void check_sealed(const struct shmq_entry *e)
{
    static uint64_t sealed[MOST / 8 + 32];
    unsigned char *at = (unsigned char *)room, *end;
    uint64_t size;

    memset(room, 0xEE, sizeof room);
    end = shmq_entry_write_unsealed(at, e);
    CHECK_EQ(shmq_entry_word(at) >> 32, 0);
    if (!e->flags)
        end = shmq_entry_write_value(end, e->offset, e->timestamp, e->value, e->value_bytes);
    size = (uint64_t)(end - at);
    CHECK_EQ(*end, 0xEE);
    shmq_entry_seal_all(at, size, SALT);
    end = shmq_entry_write((unsigned char *)sealed, SALT, e);
    if (!e->flags)
        end = shmq_entry_write(end, SALT, e);
    CHECK_EQ(end - (unsigned char *)sealed, size);
    CHECK(!memcmp(sealed, room, size));
}

TEST("an entry gets its checksum later, and is the same as if it had it from the beginning")
{
    struct chance chance = chance_of(5);

    for (int turn = 0; turn < 300; turn++) {
        struct shmq_entry e = {.count = 1,
                               .offset = 7,
                               .timestamp = 9,
                               .seen = 17,
                               .producer = 11,
                               .sequence = 13,
                               .value = carried,
                               .key = carried + 1,
                               .headers = carried + 2};

        e.value_bytes = (uint32_t)chance_below(&chance, turn % 2 ? 40 : 20000);
        e.flags = turn % 3 ? 0 : SHMQ_E_KEYED | (turn % 2 ? SHMQ_E_SEEN : SHMQ_E_PRODUCED);
        if (e.flags) {
            e.key_bytes = (uint32_t)chance_below(&chance, 100);
            e.headers_bytes = (uint32_t)chance_below(&chance, 100);
        }
        check_sealed(&e);
    }
}

static void fill(void)
{
    struct chance chance = chance_of(3);

    for (size_t i = 0; i < sizeof carried; i++)
        carried[i] = (unsigned char)chance_next(&chance);
}

TEST("an entry of any length around the pieces in which it is copied")
{
    fill();
    for (uint32_t pieces = 0; pieces < 4; pieces++)
        for (uint32_t n = pieces ? 0 : 20; n < 40; n++)
            check_entry(4096 * pieces + n - 20, 0, 0,
                        (n % 2 ? SHMQ_E_PRODUCED : 0) | (n % 3 ? SHMQ_E_SEEN : 0));
    check_entry(65536, 0, 0, 0);
}

TEST("an entry with a key and headers of any length")
{
    struct chance chance = chance_of(4);

    fill();
    for (int turn = 0; turn < 300; turn++)
        check_entry((uint32_t)chance_below(&chance, 20000), (uint32_t)chance_below(&chance, 5000),
                    (uint32_t)chance_below(&chance, 5000),
                    SHMQ_E_KEYED | (turn % 2 ? SHMQ_E_PRODUCED : 0) | (turn % 3 ? SHMQ_E_SEEN : 0));
}
