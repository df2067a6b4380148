/* The records of a .dmsq file: what is written is read, and nothing else is. */
#include "base/crc32c.h"
#include "harness.h"
#include "queue/layout.h"
#include "file/record.h"

#include <stdlib.h>
#include <string.h>

#define SALT 0x5A17C0DEu

static _Alignas(8) unsigned char file[1 << 16];

static size_t wrote(const struct shmq_record *r)
{
    memset(file, 0xA5, sizeof file);
    return (size_t)(shmq_record_write(file, SALT, r) - file);
}

static struct shmq_record reread(const struct shmq_record *r)
{
    struct shmq_record got;
    size_t next, size = wrote(r);

    CHECK_EQ(size, shmq_record_size(r));
    CHECK_EQ(size % 8, 0);
    CHECK_EQ(shmq_record_read(file, size, SALT, true, &got, &next), SHMQ_READ_OK);
    CHECK_EQ(next, size);
    CHECK_EQ(got.type, r->type);
    return got;
}

static void same_message(const struct shmq_record *got, const struct shmq_record *r)
{
    CHECK_EQ(got->flags, r->flags);
    CHECK_EQ(got->priority, r->priority);
    CHECK_EQ(got->codec, r->codec);
    CHECK_EQ(got->reason, r->reason);
    CHECK_EQ(got->deliveries, r->deliveries);
    CHECK_EQ(got->seq, r->seq);
    CHECK_EQ(got->put_at, r->put_at);
    CHECK_EQ(got->group, r->flags & SHMQ_R_GROUPED ? r->group : 0);
    CHECK_EQ(got->expires, r->flags & SHMQ_R_TTL ? r->expires : 0);
    CHECK_EQ(got->until, r->flags & SHMQ_R_DELAYED ? r->until : 0);
    CHECK_EQ(got->dead_at, r->flags & SHMQ_R_DEAD ? r->dead_at : 0);
    CHECK_EQ(got->origin_queue, r->flags & SHMQ_R_ORIGIN ? r->origin_queue : 0);
    CHECK_EQ(got->origin_seq, r->flags & SHMQ_R_ORIGIN ? r->origin_seq : 0);
    CHECK_EQ(got->body_bytes, r->body_bytes);
    CHECK_EQ(got->meta_bytes, r->meta_bytes);
    if (r->body_bytes)
        CHECK(!memcmp(got->body, r->body, r->body_bytes));
    if (r->meta_bytes)
        CHECK(!memcmp(got->meta, r->meta, r->meta_bytes));
}

/* One with all that a message can have, as far as `flags` go. */
static struct shmq_record message(uint8_t flags)
{
    return (struct shmq_record){
        .type = SHMQ_R_PUT,
        .flags = flags,
        .priority = 2,
        .codec = 255,
        .reason = flags & SHMQ_R_DEAD ? SHMQ_EXHAUSTED : SHMQ_ALIVE,
        .deliveries = 65535,
        .seq = 1ull << 40,
        .put_at = 1700000000000000001,
        .body = "hello, world",
        .body_bytes = 12,
        .meta = "\x81\xa3pri\x02",
        .meta_bytes = 6,
        .group = 7,
        .expires = 8,
        .until = -9,
        .dead_at = 10,
        .origin_queue = UINT64_MAX,
        .origin_seq = 12,
    };
}

static bool possible(uint8_t flags)
{
    return !(flags & SHMQ_R_HOLDS && !(flags & SHMQ_R_DELAYED)) &&
           !(flags & SHMQ_R_DEAD && flags & SHMQ_R_DELAYED);
}

TEST("a PUT is read as it was written, with every set of optional fields")
{
    for (unsigned flags = 0; flags <= SHMQ_R_FLAGS; flags++) {
        struct shmq_record r = message((uint8_t)flags), got;

        if (!possible((uint8_t)flags))
            continue;
        got = reread(&r);
        same_message(&got, &r);
        CHECK_EQ((uintptr_t)got.body % 8, 0);
    }
}

TEST("a PUT is read as it was written, with bodies and properties of every length up to 40")
{
    static const char text[] = "0123456789012345678901234567890123456789";

    for (uint32_t body = 0; body <= 40; body++) {
        for (uint32_t meta = 0; meta <= 40; meta++) {
            struct shmq_record r = {.type = SHMQ_R_PUT,
                                    .seq = 1,
                                    .body = text,
                                    .meta = text,
                                    .body_bytes = body,
                                    .meta_bytes = meta};
            struct shmq_record got = reread(&r);

            same_message(&got, &r);
        }
    }
}

TEST("a PUT in steps is the PUT in one")
{
    static unsigned char whole[256];
    struct shmq_record r = message(SHMQ_R_GROUPED | SHMQ_R_TTL);
    size_t size = wrote(&r);
    unsigned char *body;

    memcpy(whole, file, size);
    memset(file, 0x5A, sizeof file);
    body = shmq_record_begin(file, &r);
    memcpy(body, r.body, r.body_bytes);
    memcpy(body + r.body_bytes, r.meta, r.meta_bytes);
    CHECK(shmq_record_seal(file, SALT) == file + size);
    CHECK(!memcmp(whole, file, size));
}

TEST("an UPDATE is read as it was written, and writes only what can change")
{
    for (unsigned flags = 0; flags <= SHMQ_R_FLAGS; flags++) {
        struct shmq_record r = message((uint8_t)flags), got;

        if (!possible((uint8_t)flags))
            continue;
        r.type = SHMQ_R_UPDATE;
        got = reread(&r);
        CHECK_EQ(got.flags, flags & SHMQ_R_UPDATABLE);
        CHECK_EQ(got.deliveries, 65535);
        CHECK_EQ(got.seq, 1ll << 40);
        CHECK_EQ(got.until, flags & SHMQ_R_DELAYED ? -9 : 0);
        CHECK_EQ(got.dead_at, flags & SHMQ_R_DEAD ? 10 : 0);
        CHECK_EQ(got.reason, flags & SHMQ_R_DEAD ? SHMQ_EXHAUSTED : 0);
    }
}

TEST("SETTLE, DEDUPE and INDEX are read as they were written, and may be empty")
{
    uint64_t seqs[] = {1, 2, 1ull << 63};
    struct shmq_taken taken[] = {{{1, 2}, 3, -4}, {{5, 6}, 7, 8}};
    struct shmq_indexed_batch batches[] = {{64, 1, 9}, {65536, 2, 10}};
    struct shmq_record r = {.type = SHMQ_R_SETTLE, .count = 3, .entries = seqs}, got;

    got = reread(&r);
    CHECK_EQ(got.count, 3);
    for (uint32_t i = 0; i < 3; i++)
        CHECK_EQ(shmq_record_settled(&got, i), seqs[i]);
    r = (struct shmq_record){.type = SHMQ_R_DEDUPE, .count = 2, .entries = taken};
    got = reread(&r);
    CHECK_EQ(got.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct shmq_taken entry = shmq_record_taken(&got, i);

        CHECK(!memcmp(&entry, &taken[i], sizeof entry));
    }
    r = (struct shmq_record){.type = SHMQ_R_INDEX, .count = 2, .entries = batches};
    got = reread(&r);
    for (uint32_t i = 0; i < 2; i++) {
        struct shmq_indexed_batch entry = shmq_record_indexed(&got, i);

        CHECK(!memcmp(&entry, &batches[i], sizeof entry));
    }
    for (uint8_t type = SHMQ_R_SETTLE; type <= SHMQ_R_INDEX; type++)
        if (type == SHMQ_R_SETTLE || type == SHMQ_R_DEDUPE || type == SHMQ_R_INDEX) {
            r = (struct shmq_record){.type = type};
            CHECK_EQ(reread(&r).count, 0);
        }
}

TEST("BATCH, STATE, END and FOOTER are read as they were written")
{
    struct shmq_record r = {.type = SHMQ_R_BATCH,
                            .batch = 7,
                            .wall = -1,
                            .last_seq = 8,
                            .bytes = 4096,
                            .crc = 0xDEADBEEF};
    struct shmq_record got = reread(&r);

    CHECK_EQ(shmq_record_size(&r), SHMQ_BATCH_BYTES);
    CHECK_EQ(got.batch, 7);
    CHECK_EQ(got.wall, -1);
    CHECK_EQ(got.last_seq, 8);
    CHECK_EQ(got.bytes, 4096);
    CHECK_EQ(got.crc, 0xDEADBEEF);
    r = (struct shmq_record){.type = SHMQ_R_STATE, .last_seq = 9, .totals = {1, 2, 3, 4, 5, 6, 7}};
    got = reread(&r);
    CHECK_EQ(got.last_seq, 9);
    for (uint64_t i = 0; i < SHMQ_TOTALS; i++)
        CHECK_EQ(got.totals[i], i + 1);
    r = (struct shmq_record){
        .type = SHMQ_R_END, .batch = 1, .last_seq = 2, .batches = 3, .puts = 4};
    got = reread(&r);
    CHECK(got.batch == 1 && got.last_seq == 2 && got.batches == 3 && got.puts == 4);
    r = (struct shmq_record){.type = SHMQ_R_FOOTER, .end = 5, .index = 6};
    got = reread(&r);
    CHECK(got.end == 5 && got.index == 6);
}

/* Whatever `read` says of a damaged record, it is not OK, and it looked at no byte behind. */
static void refused(unsigned char *copy, size_t size)
{
    struct shmq_record got;
    size_t next;

    CHECK(shmq_record_read(copy, size, SALT, true, &got, &next) != SHMQ_READ_OK);
}

static void damage_everywhere(const struct shmq_record *r)
{
    size_t size = wrote(r);
    unsigned char *copy = malloc(size);

    for (size_t bit = 0; bit < size * 8; bit++) {
        memcpy(copy, file, size);
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        refused(copy, size);
    }
    free(copy);
    for (size_t cut = 0; cut < size; cut++) {
        copy = malloc(cut ? cut : 1);
        memcpy(copy, file, cut);
        refused(copy, cut);
        free(copy);
    }
}

TEST("no flipped bit and no truncation of a record is read as a record")
{
    uint64_t seqs[] = {1, 2, 3};
    struct shmq_taken taken[] = {{{1, 2}, 3, 4}};
    struct shmq_record all[] = {
        message(SHMQ_R_GROUPED | SHMQ_R_TTL | SHMQ_R_DELAYED | SHMQ_R_HOLDS),
        message(SHMQ_R_DEAD | SHMQ_R_ORIGIN),
        {.type = SHMQ_R_UPDATE, .seq = 3, .flags = SHMQ_R_DELAYED},
        {.type = SHMQ_R_SETTLE, .count = 3, .entries = seqs},
        {.type = SHMQ_R_DEDUPE, .count = 1, .entries = taken},
        {.type = SHMQ_R_BATCH, .batch = 1, .bytes = 8},
        {.type = SHMQ_R_STATE},
        {.type = SHMQ_R_END},
        {.type = SHMQ_R_FOOTER},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        damage_everywhere(&all[i]);
}

/* As `refused`, of bytes whose checksum is right again. */
static void contradicts(size_t size)
{
    unsigned char *copy = malloc(size);
    struct shmq_record got;
    enum shmq_read read;
    size_t next;

    shmq_record_seal(file, SALT);
    memcpy(copy, file, size);
    read = shmq_record_read(copy, size, SALT, true, &got, &next);
    CHECK(read == SHMQ_READ_MALFORMED || read == SHMQ_READ_TYPE || read == SHMQ_READ_CUT);
    free(copy);
}

TEST("fields that contradict each other are refused though the checksum is right")
{
    static const struct {
        size_t offset;
        unsigned char byte;
    } put[] = {
        {8, 0},  {8, 10}, {8, 255}, {9, 0x20}, {9, 0x40}, {9, 0x80}, {9, 0x08}, {10, 16},  {14, 1},
        {15, 1}, {32, 9}, {32, 1},  {35, 255}, {39, 255}, {36, 255}, {43, 1},   {47, 128},
    };
    struct shmq_record r = {.type = SHMQ_R_PUT, .seq = 5, .body = "abc", .body_bytes = 3};

    for (size_t i = 0; i < sizeof put / sizeof *put; i++) {
        size_t size = wrote(&r);

        file[put[i].offset] = put[i].byte;
        contradicts(size);
    }
    r.seq = 0;
    contradicts(wrote(&r));
    r = (struct shmq_record){.type = SHMQ_R_PUT, .seq = 5, .flags = SHMQ_R_GROUPED};
    contradicts(wrote(&r));
    r = (struct shmq_record){.type = SHMQ_R_BATCH, .bytes = 12};
    contradicts(wrote(&r));
    r = (struct shmq_record){.type = SHMQ_R_SETTLE};
    wrote(&r);
    file[12] = 1;
    contradicts(16);
}

TEST("any bytes with a right checksum are read without leaving them")
{
    struct chance chance = chance_of(1);

    for (int turn = 0; turn < 100000; turn++) {
        uint32_t words = 1 + (uint32_t)chance_below(&chance, 12);
        size_t size = 8 + 8 * words, next;
        unsigned char *copy = malloc(size);
        struct shmq_record got;

        for (size_t i = 8; i < size; i++)
            copy[i] = chance_below(&chance, 3) ? 0 : (unsigned char)chance_next(&chance);
        copy[8] = (unsigned char)chance_below(&chance, 11);
        memcpy(copy, &words, 4);
        shmq_record_seal(copy, SALT);
        if (shmq_record_read(copy, size, SALT, true, &got, &next) == SHMQ_READ_OK) {
            CHECK_EQ(next, size);
            CHECK_EQ(shmq_record_size(&got), size);
        }
        free(copy);
    }
}

TEST("a record is none under another salt, until it is sealed again")
{
    struct shmq_record r = message(0), got;
    size_t size = wrote(&r), next;

    shmq_record_write(file + size, SALT, &r);
    CHECK_EQ(shmq_record_read(file, size, SALT + 1, true, &got, &next), SHMQ_READ_CRC);
    shmq_records_seal(file, 2 * size, SALT + 1);
    CHECK_EQ(shmq_record_read(file, size, SALT + 1, true, &got, &next), SHMQ_READ_OK);
    CHECK_EQ(shmq_record_read(file + size, size, SALT + 1, true, &got, &next), SHMQ_READ_OK);
    CHECK_EQ(shmq_record_read(file, size, SALT, false, &got, &next), SHMQ_READ_OK);
    same_message(&got, &r);
}

TEST("zeros are the end, and a record that no length can hold has no size")
{
    struct shmq_record r = {
        .type = SHMQ_R_PUT, .seq = 1, .body_bytes = UINT32_MAX, .meta_bytes = UINT32_MAX};
    size_t next;

    memset(file, 0, 64);
    CHECK_EQ(shmq_record_read(file, 64, SALT, true, &r, &next), SHMQ_READ_END);
    CHECK_EQ(shmq_record_read(file, 0, SALT, true, &r, &next), SHMQ_READ_END);
    r = (struct shmq_record){
        .type = SHMQ_R_PUT, .body_bytes = UINT32_MAX, .meta_bytes = UINT32_MAX};
    CHECK_EQ(shmq_record_size(&r), 8 + 32 + (1ull << 33));
}
