/* What files say, put together: whole, torn, damaged, and salvaged. */
#include "base/crc32c.h"
#include "harness.h"
#include "file/replay.h"

#include <stdlib.h>
#include <string.h>

#define SALT 0x01020304u
#define START 16u /* where the records begin: a header is not looked at here               */

static unsigned char file[1 << 16];
static size_t size;
static uint64_t batches;

static void begin(void)
{
    memset(file, 0xEE, START);
    size = START;
    batches = 0;
}

static void record(const struct shmq_record *r)
{
    size = (size_t)(shmq_record_write(file + size, SALT, r) - file);
}

/* Puts the records that `write` writes into a batch. */
static void batch(void (*write)(uint64_t), uint64_t argument)
{
    size_t head = size, end;
    struct shmq_record r = {.type = SHMQ_R_BATCH, .batch = ++batches, .wall = 1};

    size += SHMQ_BATCH_BYTES;
    write(argument);
    end = size;
    r.bytes = end - head - SHMQ_BATCH_BYTES;
    r.crc = shmq_crc32c(0, file + head + SHMQ_BATCH_BYTES, r.bytes);
    size = head;
    record(&r);
    size = end;
}

static void two_puts(uint64_t seq)
{
    char body[32] = "body of ";

    body[8] = (char)('0' + seq % 10);
    record(&(struct shmq_record){.type = SHMQ_R_PUT, .seq = seq, .body = body, .body_bytes = 9});
    record(&(struct shmq_record){.type = SHMQ_R_PUT,
                                 .seq = seq + 1,
                                 .body = body,
                                 .body_bytes = 9,
                                 .flags = SHMQ_R_TTL | SHMQ_R_ORIGIN,
                                 .expires = 77,
                                 .origin_queue = 5,
                                 .origin_seq = seq});
}

static void settle(uint64_t seq)
{
    record(&(struct shmq_record){.type = SHMQ_R_SETTLE, .count = 1, .entries = &seq});
}

static void delay(uint64_t seq)
{
    record(&(struct shmq_record){
        .type = SHMQ_R_UPDATE, .seq = seq, .flags = SHMQ_R_DELAYED, .until = 99, .deliveries = 3});
}

/* Messages 1, 2, 3 and 4, of which 1 is settled and 2 delayed. */
static void whole_file(void)
{
    begin();
    batch(two_puts, 1);
    batch(two_puts, 3);
    batch(settle, 1);
    batch(delay, 2);
}

static enum shmq_fed fed(struct shmq_replay *r, const unsigned char *bytes, size_t bytes_size,
                         uint64_t whole, bool exact, struct shmq_found *found)
{
    return shmq_replay_feed(r, bytes, bytes_size, START, SALT, 1, whole, exact, found);
}

/* What has become of each message is one of the things it went through. */
static void check_messages(struct shmq_replay *r)
{
    CHECK(shmq_replay_sort(r, 0));
    for (uint64_t i = 0; i < r->live.count; i++) {
        struct shmq_record got;
        char body[] = "body of ?";

        shmq_replay_message(r, i, &got);
        CHECK(got.seq >= 1 && got.seq <= 4);
        body[8] = got.seq < 3 ? '1' : '3';
        CHECK(got.body_bytes == 9 && !memcmp(got.body, body, 9));
        CHECK_EQ(got.until, got.flags & SHMQ_R_DELAYED ? 99 : 0);
        CHECK_EQ(got.expires, got.seq % 2 ? 0 : 77);
    }
}

TEST("a file gives its live messages in order, in their newest state")
{
    struct shmq_replay r;
    struct shmq_found found;
    struct shmq_record got;

    whole_file();
    shmq_replay_begin(&r, false, 0, UINT64_MAX);
    CHECK_EQ(fed(&r, file, size, 0, false, &found), SHMQ_FED_OK);
    CHECK_EQ(found.end, size);
    CHECK(found.batches == 4 && found.puts == 4 && r.live.count == 3 && r.last_seq == 4);
    CHECK_EQ(r.copies.count, 2);
    check_messages(&r);
    shmq_replay_message(&r, 0, &got);
    CHECK(got.seq == 2 && got.flags == (SHMQ_R_TTL | SHMQ_R_ORIGIN | SHMQ_R_DELAYED));
    CHECK(got.deliveries == 3 && got.until == 99);
    shmq_replay_end(&r);
}

/* Every bit of the file once in turn, read in pieces and at once. */
TEST("a file that is read in pieces gives the same as one read at once")
{
    whole_file();
    for (size_t bit = START * 8; bit <= size * 8; bit++) {
        struct shmq_replay once, parts;
        struct shmq_found all, found;
        enum shmq_fed how;
        uint64_t at = START;
        int calls = 1;

        if (bit < size * 8)
            file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        for (int salvage = 0; salvage < 2; salvage++) {
            shmq_replay_begin(&once, salvage, 0, UINT64_MAX);
            shmq_replay_begin(&parts, salvage, 0, UINT64_MAX);
            parts.most = 1;
            for (; (how = fed(&parts, file, size, 0, false, &found)) == SHMQ_FED_MORE; calls++) {
                CHECK(found.end > at);
                at = found.end;
            }
            CHECK_EQ(how, fed(&once, file, size, 0, false, &all));
            CHECK(found.end == all.end && found.batches == all.batches && found.puts == all.puts);
            CHECK(how != SHMQ_FED_DAMAGED || found.damage == all.damage);
            CHECK(parts.live.count == once.live.count && parts.skipped.count == once.skipped.count);
            CHECK_EQ(parts.images.count, 1);
            CHECK(bit < size * 8 || calls == 5 || salvage);
            shmq_replay_end(&once);
            shmq_replay_end(&parts);
            at = START;
        }
        if (bit < size * 8)
            file[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

TEST("what is fed again changes nothing")
{
    struct shmq_replay r;
    struct shmq_found found;

    whole_file();
    shmq_replay_begin(&r, false, 0, UINT64_MAX);
    for (int turn = 0; turn < 3; turn++)
        CHECK_EQ(fed(&r, file, size, size, false, &found), SHMQ_FED_OK);
    CHECK_EQ(r.live.count, 3);
    check_messages(&r);
    shmq_replay_end(&r);
}

TEST("wherever the last batch is torn, those before it count")
{
    size_t last;

    begin();
    batch(two_puts, 1);
    last = size;
    batch(two_puts, 3);
    for (size_t cut = last; cut < size; cut++) {
        unsigned char *copy = malloc(cut);
        struct shmq_replay r;
        struct shmq_found found;
        enum shmq_fed how;

        memcpy(copy, file, cut);
        shmq_replay_begin(&r, false, 0, UINT64_MAX);
        how = fed(&r, copy, cut, 0, false, &found);
        CHECK(how == SHMQ_FED_TORN || (cut < last + 8 && how == SHMQ_FED_OK));
        CHECK(found.end == last && r.live.count == 2);
        check_messages(&r);
        shmq_replay_end(&r);
        shmq_replay_begin(&r, false, 0, UINT64_MAX);
        CHECK_EQ(fed(&r, copy, cut, size, true, &found), SHMQ_FED_DAMAGED);
        shmq_replay_end(&r);
        free(copy);
    }
}

TEST("a file that ends before its records begin has none")
{
    struct shmq_replay r;
    struct shmq_found found;
    unsigned char *bytes = calloc(1, 8);

    shmq_replay_begin(&r, false, 0, UINT64_MAX);
    CHECK_EQ(fed(&r, bytes, 8, 0, false, &found), SHMQ_FED_OK);
    CHECK_EQ(fed(&r, bytes, 8, 8, true, &found), SHMQ_FED_OK);
    CHECK_EQ(fed(&r, bytes, 8, START + 8, false, &found), SHMQ_FED_DAMAGED);
    CHECK_EQ(found.damage, 8);
    CHECK_EQ(shmq_replay_closed(bytes, 8, START, SALT), 0);
    CHECK_EQ(shmq_replay_closed(bytes, 8, UINT64_MAX - 7, SALT), 0);
    CHECK_EQ(r.live.count, 0);
    shmq_replay_end(&r);
    free(bytes);
}

TEST("zeros behind the end, and what is behind the bytes that count, are nothing")
{
    struct shmq_replay r;
    struct shmq_found found;
    size_t end;

    whole_file();
    memset(file + size, 0, 4096);
    shmq_replay_begin(&r, false, 0, UINT64_MAX);
    CHECK_EQ(fed(&r, file, size + 4096, 0, false, &found), SHMQ_FED_OK);
    CHECK_EQ(found.end, size);
    shmq_replay_end(&r);
    end = size;
    batch(two_puts, 5);
    shmq_replay_begin(&r, false, 0, UINT64_MAX);
    CHECK_EQ(fed(&r, file, size, end, true, &found), SHMQ_FED_OK);
    CHECK(found.end == end && r.live.count == 3);
    shmq_replay_end(&r);
}

/* Every bit, one at a time; `last`: where the last batch begins. */
static void flip_all(size_t last, bool salvage)
{
    unsigned char *copy = malloc(size);

    for (size_t bit = START * 8; bit < size * 8; bit++) {
        struct shmq_replay r;
        struct shmq_found found;
        enum shmq_fed how;

        memcpy(copy, file, size);
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        shmq_replay_begin(&r, salvage, 0, UINT64_MAX);
        how = fed(&r, copy, size, 0, false, &found);
        if (salvage)
            CHECK(how == SHMQ_FED_OK || how == SHMQ_FED_TORN);
        else if (bit / 8 < last)
            CHECK(how == SHMQ_FED_DAMAGED && found.damage <= bit / 8);
        else
            CHECK(how == SHMQ_FED_TORN || how == SHMQ_FED_OK);
        CHECK(!salvage || bit / 8 >= last || r.skipped.count == 1);
        if (how != SHMQ_FED_DAMAGED)
            check_messages(&r);
        shmq_replay_end(&r);
    }
    free(copy);
}

TEST("no flipped bit before the last batch goes unseen, and none makes a wrong message")
{
    size_t last;

    whole_file();
    last = size;
    batch(settle, 99);
    flip_all(last, false);
    flip_all(last, true);
}

TEST("salvage takes every record but the damaged one")
{
    struct shmq_replay r;
    struct shmq_found found;
    struct shmq_skipped *skipped;

    whole_file();
    batch(settle, 99);
    file[START + SHMQ_BATCH_BYTES + 8 + 40] ^= 1; /* in the body of message 1               */
    shmq_replay_begin(&r, true, 0, UINT64_MAX);
    CHECK_EQ(fed(&r, file, size, 0, false, &found), SHMQ_FED_OK);
    CHECK_EQ(r.live.count, 3);
    CHECK_EQ(r.skipped.count, 1);
    skipped = r.skipped.items;
    CHECK_EQ(skipped->offset, START + SHMQ_BATCH_BYTES);
    CHECK_EQ(skipped->bytes, 8 + 32 + 16);
    CHECK_EQ(skipped->how, SHMQ_READ_CRC);
    CHECK_EQ(found.end, size);
    shmq_replay_end(&r);
}

TEST("a file that is shorter than it must be is salvaged up to there")
{
    struct shmq_replay r;
    struct shmq_found found;

    whole_file();
    shmq_replay_begin(&r, true, 0, UINT64_MAX);
    CHECK_EQ(fed(&r, file, size, size + 800, true, &found), SHMQ_FED_OK);
    CHECK_EQ(r.skipped.count, 1);
    CHECK_EQ(((struct shmq_skipped *)r.skipped.items)->bytes, 800);
    shmq_replay_end(&r);
}

TEST("a batch that is not later than the one before it is damage")
{
    struct shmq_replay r;
    struct shmq_found found;

    begin();
    batch(two_puts, 1);
    batches--;
    batch(two_puts, 3);
    batch(settle, 1);
    shmq_replay_begin(&r, false, 0, UINT64_MAX);
    CHECK_EQ(fed(&r, file, size, size, true, &found), SHMQ_FED_DAMAGED);
    CHECK_EQ(found.how, SHMQ_READ_MALFORMED);
    shmq_replay_end(&r);
}

/* The table against an array, by chance. */
TEST("messages that come and go by the thousand are all accounted for")
{
    static bool live[4000];
    struct chance chance = chance_of(3);
    struct shmq_replay r;
    struct shmq_found found;
    uint64_t count = 0;

    memset(live, 0, sizeof live);
    shmq_replay_begin(&r, false, 0, UINT64_MAX);
    for (int turn = 0; turn < 40000; turn++) {
        uint64_t seq = 1 + chance_below(&chance, 3998);
        bool come = chance_below(&chance, 2);

        begin();
        batch(come ? two_puts : settle, seq);
        CHECK_EQ(fed(&r, file, size, 0, false, &found), SHMQ_FED_OK);
        count += come ? !live[seq] + !live[seq + 1] : 0;
        count -= !come && live[seq];
        live[seq] = come;
        if (come)
            live[seq + 1] = true;
        CHECK_EQ(r.live.count, count);
    }
    CHECK(shmq_replay_discard(&r, 4000) == false);
    CHECK(shmq_replay_sort(&r, 0));
    for (uint64_t i = 0, seq = 0; i < r.live.count; i++) {
        while (!live[++seq])
            ;
        CHECK_EQ(r.live.at[i].seq, seq);
    }
    shmq_replay_end(&r);
}

/* As a journal has them: each in order, most of them settled soon, and a few late ones. */
TEST("messages that come in order are found, forgotten, and there again")
{
    struct shmq_replay r;
    struct shmq_found found;
    uint64_t kept = 0;

    shmq_replay_begin(&r, false, 0, UINT64_MAX);
    for (uint64_t seq = 10; seq < 30000; seq += 3) { /* and seq + 1 with it */
        begin();
        batch(two_puts, seq);
        batch(settle, seq);
        if (seq % 4)
            batch(settle, seq + 1);
        else
            kept++;
        CHECK_EQ(fed(&r, file, size, 0, false, &found), SHMQ_FED_OK);
        CHECK_EQ(r.live.count, kept);
    }
    CHECK(!r.live.hashed && r.live.room < 10000); /* the gaps are closed now and then */
    CHECK(!shmq_replay_discard(&r, 16) && !shmq_replay_discard(&r, 18));
    CHECK(!shmq_replay_discard(&r, 9) && !shmq_replay_discard(&r, 30001));
    CHECK(shmq_replay_discard(&r, 17));
    begin();
    batch(two_puts, 16); /* 17 again, and 16 out of order unless its gap is there still */
    batch(two_puts, 3);
    CHECK_EQ(fed(&r, file, size, 0, false, &found), SHMQ_FED_OK);
    CHECK(r.live.hashed);
    CHECK_EQ(r.live.count, kept + 3);
    CHECK(shmq_replay_sort(&r, 0));
    for (uint64_t i = 1; i < r.live.count; i++)
        CHECK(r.live.at[i].size && r.live.at[i - 1].seq < r.live.at[i].seq);
    shmq_replay_end(&r);
}
