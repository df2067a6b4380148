/* A partition of a stream whose options are altered while it is in use. */
#include "log_fixture.h"
#include "registered.h"

#include <string.h>
#include <sys/mman.h>

#define RING 65536u

/* There is one thread, and its sanitizer takes ten times as long as the others. */
#ifdef __SANITIZE_THREAD__
#define STEP 13u
#else
#define STEP 1u
#endif

struct wanted {
    uint64_t ring, retention_bytes;
    int64_t retention;
};

static void alter(struct shmq_log *log, struct wanted wanted)
{
    struct shmq_log_options o = log->h->options;

    o.stream_id = log->stream->options.stream_id;
    o.ring_bytes = wanted.ring;
    o.max_record_bytes = wanted.ring / 4;
    o.retention_bytes = wanted.retention_bytes;
    o.retention = wanted.retention;
    shmq_stream_alter(log->stream, &o);
}

/* The same, and a partition that has noticed it; whether it applies. */
static bool grow(struct shmq_log *log, uint64_t ring)
{
    alter(log, (struct wanted){.ring = ring});
    CHECK_EQ(shmq_log_lock(log, 1000000000), SHMQ_OK);
    shmq_log_unlock(log);
    return shmq_log_ring_bytes(log) == ring;
}

static void read_all(struct shmq_log *log)
{
    struct shmq_log_bounds b = bounds_of(log);

    for (uint64_t at = b.earliest; at < b.latest;) {
        uint64_t got = read_some(log, at, UINT32_MAX);

        CHECK(got > 0);
        at += got;
    }
}

static uint64_t append_some(struct shmq_log *log, struct chance *chance, uint32_t most)
{
    uint64_t first;
    uint32_t count = 1 + (uint32_t)chance_below(chance, 4);
    uint32_t bytes = (uint32_t)chance_below(chance, most);

    if (chance_below(chance, 2) && append_short(log, count, bytes, &first))
        return first + count;
    CHECK_EQ(append_piece(log, count, bytes, &first), SHMQ_OK);
    if (log->durable)
        shmq_log_mark_synced(log, first + count);
    return first + count;
}

/* Grows behind so many records, and again behind as many, and then goes on for rounds. */
static void grow_behind(uint8_t durability, uint32_t records, uint32_t bytes)
{
    struct shmq_log *log = NEW_LOG(.durability = durability);
    struct shmq_log *other = another_log(log);
    struct chance chance = chance_of(records * 31 + bytes);
    uint64_t ring = RING;

    for (int growth = 0; growth < 3; growth++) {
        struct shmq_log_bounds before, after;
        uint64_t target = bounds_of(log).latest + records, kept;

        while (bounds_of(log).latest < target) {
            append_bytes(log, bytes);
            if (log->durable)
                shmq_log_mark_synced(log, bounds_of(log).latest);
        }
        before = bounds_of(other);
        ring = ring * (growth + 3) / 2 & ~4095ull;
        CHECK(grow(growth % 2 ? other : log, ring));
        after = bounds_of(other);
        CHECK(!memcmp(&before, &after, sizeof after));
        read_all(other);
        /* Nothing goes before the ring is full. */
        while (shmq_log_committed(log) - before.oldest + 3 * 4096 < ring) {
            append_some(growth % 2 ? log : other, &chance, 1000);
            CHECK_EQ(bounds_of(other).earliest, before.earliest);
        }
        read_all(other);
        kept = bounds_of(other).latest;
        for (int n = 0; bounds_of(other).earliest < kept; n++) {
            append_some(other, &chance, 3000);
            if (n % 8 == 0)
                read_all(log);
        }
        read_all(log);
        CHECK(shmq_log_committed(log) - shmq_log_oldest(log) <= ring);
    }
    end_logs();
}

TEST("a ring grows wherever it is, and again, and keeps every record")
{
    for (uint32_t records = 0; records < 130; records += STEP)
        grow_behind(SHMQ_LOG_MEMORY, records, 976); /* 64 of them fill the first ring: all places */
}

TEST("a durable stream's ring grows, with pads and records of any size")
{
    for (uint32_t bytes = 1; bytes < 16000; bytes = bytes * 2 + 37)
        grow_behind(SHMQ_LOG_JOURNAL, 3 + 40000 / bytes, bytes);
}

TEST("a ring grows again and again, up to sixteen times, at random")
{
    for (uint64_t seed = 1; seed < 30; seed += STEP) {
        struct shmq_log *log = NEW_LOG(), *other = another_log(log);
        struct chance chance = chance_of(seed);
        uint64_t ring = RING, next = 0;

        while (ring < 16 * RING) {
            uint64_t until = shmq_log_committed(log) + chance_below(&chance, 3 * ring);

            while (shmq_log_committed(log) < until) {
                CHECK(append_some(chance_below(&chance, 2) ? log : other, &chance, 5000) > next);
                next = bounds_of(log).latest;
                CHECK(shmq_log_committed(log) - shmq_log_oldest(log) <= ring);
                if (chance_below(&chance, 8) == 0)
                    read_all(chance_below(&chance, 2) ? log : other);
            }
            read_all(log);
            ring += 4096 * (1 + chance_below(&chance, ring / 4096));
            ring = ring < 16 * RING ? ring : 16 * RING;
            CHECK(grow(log, ring));
        }
        end_logs();
    }
}

TEST("the time and the offset of any record lead to it after growths")
{
    struct shmq_log *log = NEW_LOG();
    uint64_t ring = RING, offset;

    for (int n = 0; n < 4000; n++) {
        append_bytes(log, 300);
        if (n % 700 == 699)
            CHECK(grow(log, ring += RING));
    }
    for (offset = bounds_of(log).earliest; offset < bounds_of(log).latest; offset++) {
        struct shmq_log_extent x;
        uint64_t found;

        CHECK_EQ(shmq_log_find(log, offset, UINT64_MAX, 1, 0, UINT64_MAX, &x), SHMQ_OK);
        CHECK_EQ(x.first, offset);
        CHECK_EQ(shmq_log_at(log, x.seen, &found), SHMQ_OK);
        CHECK(found <= offset);
    }
    end_logs();
}

TEST("a full ring has room once it has grown, and what was pinned stays")
{
    for (uint32_t before = 0; before < 70; before++) {
        struct shmq_log *log = NEW_LOG(.overflow = SHMQ_LOG_BLOCK);
        uint64_t first, held;
        uint32_t hold;

        for (uint32_t n = 0; n <= before; n++)
            append_bytes(log, 2000);
        held = bounds_of(log).earliest;
        CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
        CHECK_EQ(
            shmq_log_hold(log, before % 2 ? SHMQ_HOLD_PIN : SHMQ_HOLD_CURSOR, 7, 0, held, &hold),
            SHMQ_OK);
        shmq_log_unlock(log);
        while (append_piece(log, 1, 2000, &first) == SHMQ_OK)
            continue;
        CHECK(grow(log, RING + 4096));
        CHECK_EQ(append_piece(log, 1, 2000, &first), SHMQ_OK);
        while (append_piece(log, 1, 2000, &first) == SHMQ_OK)
            continue;
        CHECK(grow(log, 4 * RING)); /* while records of the first ring are held               */
        for (int n = 0; n < 60; n++)
            CHECK_EQ(append_piece(log, 1, 2000, &first), SHMQ_OK);
        CHECK_EQ(bounds_of(log).earliest, held);
        read_all(log);
        shmq_log_drop(log, hold);
        for (int n = 0; n < 400; n++)
            append_bytes(log, 2000);
        read_all(log);
        end_logs();
    }
}

TEST("entries that were found before two alterations are looked for nowhere")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_extent x;
    uint64_t ring = RING;
    unsigned char to[RING];

    append_piece(log, 10, 1000, &x.first);
    CHECK_EQ(shmq_log_find(log, 0, UINT64_MAX, 10, RING, UINT64_MAX, &x), SHMQ_OK);
    CHECK_EQ(x.entries, 10);
    for (int alteration = 0; alteration < 2; alteration++) {
        for (uint64_t until = shmq_log_committed(log) + 2 * ring; shmq_log_committed(log) < until;)
            append_bytes(log, 1000);
        CHECK(grow(log, ring += RING));
    }
    CHECK_EQ(mprotect(log->ring, 2 * log->half, PROT_NONE), 0);
    CHECK(!shmq_log_copy(log, &x, to));
    CHECK_EQ(mprotect(log->ring, 2 * log->half, PROT_READ | PROT_WRITE), 0);
    end_logs();
}

/* ---- loans ---- */

static int borrow(struct shmq_log *log, uint32_t bytes, struct shmq_log_loan *loan)
{
    struct shmq_log_item item = {.value_bytes = bytes, .count = 1};
    struct shmq_log_piece piece = {.loan = loan, .items = &item, .count = 1};
    struct shmq_log_appended out;
    int status;

    *loan = (struct shmq_log_loan){.owner = 7};
    CHECK_EQ(shmq_log_lock(log, 1000000000), SHMQ_OK);
    status = shmq_log_append(log, &piece, &out);
    shmq_log_unlock(log);
    return status;
}

static void give_back(struct shmq_log *log, struct shmq_log_loan *loan, uint32_t bytes)
{
    struct shmq_log_item item = {.value_bytes = bytes, .count = 1};
    struct shmq_log_piece piece = {.loan = loan, .items = &item, .count = 1};
    struct shmq_log_appended out;

    CHECK_EQ(shmq_log_lock(log, 1000000000), SHMQ_OK);
    memset(loan->value, (int)(atomic_load(&log->h->next) % 251), bytes);
    CHECK_EQ(shmq_log_append(log, &piece, &out), SHMQ_OK);
    shmq_log_unlock(log);
}

TEST("a loan that is open while the ring grows is appended, and nothing is written there")
{
    for (uint32_t turn = 0; turn < 200; turn += STEP) {
        struct shmq_log *log = NEW_LOG(), *other = another_log(log);
        struct chance chance = chance_of(turn);
        struct shmq_log_loan loan;
        uint32_t bytes = 1 + (uint32_t)chance_below(&chance, 16000), lent;

        for (uint32_t n = 0; n < turn; n++)
            append_bytes(log, 1000);
        CHECK_EQ(borrow(log, bytes, &loan), SHMQ_OK);
        memset(loan.value, 0xAB, bytes);
        lent = turn % 4 ? (uint32_t)chance_below(&chance, 60) : 0;
        for (uint32_t n = 0; n < lent; n++)
            append_some(other, &chance, 3000);
        CHECK(grow(other, 2 * RING));
        for (uint32_t n = 0; n < (turn % 3 ? 200 : 0); n++) {
            append_some(other, &chance, 3000);
            if (n % 8 == 0)
                read_all(other);
        }
        for (uint32_t i = 0; i < bytes; i++)
            CHECK_EQ(loan.value[i], 0xAB);
        give_back(log, &loan, bytes / 2);
        CHECK_EQ(atomic_load(&log->h->loaned), 0);
        for (uint32_t n = 0; n < 200; n++)
            append_some(other, &chance, 3000);
        read_all(other);
        end_logs();
    }
}

TEST("a ring does not grow into a place that is lent, but once the loan has ended")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_loan loan;

    for (int n = 0; n < 100; n++)
        append_bytes(log, 1000);
    CHECK_EQ(borrow(log, 5000, &loan), SHMQ_OK);
    CHECK(grow(log, 2 * RING)); /* into the other half */
    for (int n = 0; n < 200; n++)
        append_bytes(log, 1000);
    CHECK(!grow(log, 4 * RING)); /* back into the first, where the loan is */
    for (int n = 0; n < 200; n++)
        append_bytes(log, 1000);
    CHECK_EQ(shmq_log_ring_bytes(log), 2 * RING);
    give_back(log, &loan, 5000);
    append_bytes(log, 1);
    CHECK_EQ(shmq_log_ring_bytes(log), 4 * RING);
    read_all(log);
    end_logs();
}

/* ---- retention ---- */

TEST("bytes that are to be kept from now on are kept, across a growth")
{
    for (uint32_t before = 1; before < 400; before += 7 * STEP) {
        struct shmq_log *log = NEW_LOG(.retention_bytes = 30000);
        uint64_t kept = 120000, first;

        for (uint32_t n = 0; n < before; n++)
            append_bytes(log, 500);
        first = bounds_of(log).earliest;
        alter(log, (struct wanted){.ring = 2 * RING, .retention_bytes = kept});
        for (int n = 0; n < 800; n++) {
            struct shmq_log_bounds b;

            append_bytes(log, n % 20 ? 500 : 20000);
            b = bounds_of(log);
            CHECK(b.earliest == first || b.committed - b.oldest >= kept - kept / 10);
            CHECK(b.committed - b.oldest <= kept + 70000);
            if (n % 8 == 0)
                read_all(log);
        }
        end_logs();
    }
}

TEST("a shorter retention applies to what is there, and a smaller ring is not made")
{
    struct shmq_log *log = NEW_LOG();

    for (int n = 0; n < 100; n++)
        append_bytes(log, 1000);
    alter(log, (struct wanted){.ring = RING, .retention_bytes = 10000, .retention = 1000000000});
    append_bytes(log, 1000);
    CHECK(bounds_of(log).committed - bounds_of(log).oldest <= 10000);
    CHECK_EQ(shmq_log_retention(log), 1000000000);
    alter(log, (struct wanted){.ring = RING / 2});
    append_bytes(log, 1000);
    CHECK(shmq_log_ring_bytes(log) >= RING);
    CHECK_EQ(shmq_log_retention(log), 0);
    end_logs();
}

/* ---- damage ---- */

TEST("settings that make no sense are refused, and lead nowhere outside")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_geometry geo;
    struct chance chance = chance_of(5);
    unsigned char *settings = (unsigned char *)log->h->settings;
    unsigned char kept[sizeof log->h->settings];
    uint64_t refused = 0;

    for (int n = 0; n < 200; n++)
        append_bytes(log, 1000);
    CHECK(grow(log, 2 * RING));
    append_bytes(log, 1000);
    memcpy(kept, settings, sizeof kept);
    for (int round = 0; round < 3000; round++) {
        struct shmq_log_extent x;
        uint64_t first;

        settings[chance_below(&chance, sizeof kept)] ^= (unsigned char)(1 + round % 255);
        refused += shmq_log_inspect(log->h, log->h->segment_bytes, &geo) == SHMQ_DAMAGED;
        for (uint64_t offset = 0; offset < 210; offset += 13)
            (void)shmq_log_find(log, offset, UINT64_MAX, 9, 1 << 20, UINT64_MAX, &x);
        if (round % 5 == 0)
            (void)append_piece(log, 1, 100, &first);
        memcpy(settings, kept, sizeof kept);
    }
    CHECK(refused > 100);
    end_logs();
}
