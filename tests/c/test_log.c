/* A partition of a stream, by one thread: what is appended, read, lost, kept and mended. */
#include "log_fixture.h"
#include "registered.h"

#include <string.h>

TEST("an empty partition has nothing to read")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_bounds b = bounds_of(log);

    CHECK_EQ(b.earliest, 0);
    CHECK_EQ(b.latest, 0);
    CHECK_EQ(read_some(log, 0, 10), 0);
    end_logs();
}

TEST("records are read from any offset, through many rounds of the ring")
{
    struct shmq_log *log = NEW_LOG();
    struct chance chance = chance_of(7);

    for (uint64_t n = 0; n < 3000; n++) {
        struct shmq_log_bounds b;
        uint64_t offset;

        CHECK_EQ(append_bytes(log, (uint32_t)chance_below(&chance, n % 50 ? 200 : 16000)), n);
        b = bounds_of(log);
        CHECK_EQ(b.latest, n + 1);
        CHECK(b.earliest < b.latest && b.committed - b.oldest <= shmq_log_ring_bytes(log));
        offset = b.earliest + chance_below(&chance, b.latest - b.earliest);
        CHECK(read_some(log, offset, 1 + chance_below(&chance, 100)) > 0);
        CHECK_EQ(read_some(log, b.earliest, UINT32_MAX), b.latest - b.earliest);
    }
    end_logs();
}

TEST("a piece is in one step, wherever the ring wraps")
{
    struct shmq_log *log = NEW_LOG();
    uint64_t first, next = 0;

    for (uint32_t n = 1; n < 200; n++) {
        CHECK_EQ(append_piece(log, n % 60 + 1, 37 * (n % 11), &first), SHMQ_OK);
        CHECK_EQ(first, next);
        next += n % 60 + 1;
        CHECK_EQ(read_some(log, first, UINT32_MAX), n % 60 + 1);
    }
    end_logs();
}

static void append_both_ways(struct shmq_log *log, struct shmq_log *other)
{
    struct chance chance = chance_of(11);
    uint64_t shorter = 0, next = 0, first;

    for (int turn = 0; turn < 4000; turn++) {
        uint32_t count = 1 + (uint32_t)chance_below(&chance, 20);
        uint32_t bytes = (uint32_t)chance_below(&chance, turn % 100 ? 90 : 600);
        struct shmq_log *by = chance_below(&chance, 2) ? log : other;
        struct shmq_log_bounds b;

        if (turn % 3 && append_short(by, count, bytes, &first))
            shorter++;
        else
            CHECK_EQ(append_piece(by, count, bytes, &first), SHMQ_OK);
        CHECK_EQ(first, next);
        next += count;
        b = bounds_of(other);
        CHECK(b.latest == next && b.committed - b.oldest <= shmq_log_ring_bytes(log));
        CHECK_EQ(read_some(log, first, UINT32_MAX), count);
        CHECK_EQ(read_some(other, b.earliest, UINT32_MAX), b.latest - b.earliest);
        if (log->durable)
            shmq_log_mark_synced(log, next);
    }
    CHECK(shorter > 2000);
}

TEST("values alone are appended as pieces are, by any handle, through many rounds of the ring")
{
    struct shmq_log *log = NEW_LOG();

    append_both_ways(log, another_log(log));
    end_logs();
}

TEST("values alone of a durable stream have their checksums")
{
    struct shmq_log *log = NEW_LOG(.durability = SHMQ_LOG_JOURNAL);

    append_both_ways(log, another_log(log));
    end_logs();
}

TEST("the short path does not append what may not be appended now")
{
    struct shmq_log *log = NEW_LOG(.overflow = SHMQ_LOG_BLOCK);
    uint64_t first, had;
    uint32_t at;

    append_bytes(log, 10);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    CHECK_EQ(shmq_log_hold(log, SHMQ_HOLD_CURSOR, 0, 0, 0, &at), SHMQ_OK);
    shmq_log_unlock(log);
    while (append_short(log, 1, 1000, &first))
        ;
    had = bounds_of(log).latest;
    CHECK_EQ(bounds_of(log).earliest, 0);
    CHECK_EQ(append_piece(log, 1, 1000, &first), SHMQ_FULL);
    shmq_log_drop(log, at);
    CHECK_EQ(append_bytes(log, 1000), had);
    shmq_log_seal(log);
    CHECK(!append_short(log, 1, 10, &first));
    CHECK_EQ(bounds_of(log).latest, had + 1);
    end_logs();
}

TEST("what cannot be in the ring at once is refused")
{
    struct shmq_log *log = NEW_LOG();
    uint64_t first;

    CHECK_EQ(append_piece(log, 1, 65536, &first), SHMQ_TOO_LARGE);
    CHECK_EQ(append_piece(log, 5, 16000, &first), SHMQ_TOO_LARGE);
    CHECK_EQ(append_piece(log, 4, 16000, &first), SHMQ_OK);
    end_logs();
}

TEST("an offset that is gone, or not there yet, is out of range")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_extent x;

    while (bounds_of(log).earliest == 0)
        append_bytes(log, 1000);
    CHECK_EQ(shmq_log_find(log, 0, UINT64_MAX, 1, 1, UINT64_MAX, &x), SHMQ_OUT_OF_RANGE);
    CHECK_EQ(shmq_log_find(log, bounds_of(log).latest, UINT64_MAX, 1, 1, UINT64_MAX, &x), SHMQ_OK);
    CHECK_EQ(x.entries, 0);
    CHECK_EQ(shmq_log_find(log, bounds_of(log).latest + 1, UINT64_MAX, 1, 1, UINT64_MAX, &x),
             SHMQ_OUT_OF_RANGE);
    end_logs();
}

TEST("a read ends at its limits, but has one record at least")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_extent x;

    for (int i = 0; i < 10; i++)
        append_bytes(log, 100);
    CHECK_EQ(shmq_log_find(log, 2, 7, 100, UINT64_MAX, UINT64_MAX, &x), SHMQ_OK);
    CHECK_EQ(x.next, 7);
    CHECK_EQ(shmq_log_find(log, 2, UINT64_MAX, 3, UINT64_MAX, UINT64_MAX, &x), SHMQ_OK);
    CHECK_EQ(x.next, 5);
    CHECK_EQ(shmq_log_find(log, 2, UINT64_MAX, 3, 1, UINT64_MAX, &x), SHMQ_OK);
    CHECK_EQ(x.next, 3);
    CHECK_EQ(shmq_log_find(log, 3, UINT64_MAX, 3, 1, x.end, &x), SHMQ_OK);
    CHECK_EQ(x.first, 3);
    end_logs();
}

TEST("a hint of another offset leads nowhere wrong")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_extent x;
    uint64_t hint;

    for (int i = 0; i < 10; i++)
        append_bytes(log, 100);
    CHECK_EQ(shmq_log_find(log, 8, UINT64_MAX, 1, 1, UINT64_MAX, &x), SHMQ_OK);
    hint = x.begin;
    while (bounds_of(log).oldest <= hint)
        append_bytes(log, 1000);
    CHECK_EQ(shmq_log_find(log, 8, UINT64_MAX, 1, 1, hint, &x), SHMQ_OUT_OF_RANGE);
    end_logs();
}

TEST("a time leads to the first record from then on")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_item item = {.value = "", .count = 1};
    struct shmq_log_piece piece = {.items = &item, .count = 1};
    struct shmq_log_appended out;
    uint64_t offset;

    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    for (int64_t n = 0; n < 1000; n++) {
        piece.timestamp = 1000 + n / 10 * 10;
        CHECK_EQ(shmq_log_append(log, &piece, &out), SHMQ_OK);
    }
    shmq_log_unlock(log);
    for (int64_t n = 0; n < 100; n++) {
        CHECK_EQ(shmq_log_at(log, 1000 + n * 10, &offset), SHMQ_OK);
        CHECK_EQ(offset, n * 10);
        CHECK_EQ(shmq_log_at(log, 1001 + n * 10, &offset), SHMQ_OK);
        CHECK_EQ(offset, n * 10 + 10);
    }
    end_logs();
}

TEST("what is pinned stays, until it is dropped; a cursor's only where the stream blocks")
{
    for (int blocks = 0; blocks < 2; blocks++) {
        struct shmq_log *log = NEW_LOG(.overflow = blocks ? SHMQ_LOG_BLOCK : SHMQ_LOG_DROP);
        uint32_t pin, cursor;
        uint64_t first;

        append_bytes(log, 100);
        CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
        CHECK_EQ(shmq_log_hold(log, SHMQ_HOLD_PIN, 1, 0, 0, &pin), SHMQ_OK);
        CHECK_EQ(shmq_log_hold(log, SHMQ_HOLD_CURSOR, 1, 0, 0, &cursor), SHMQ_OK);
        shmq_log_unlock(log);
        while (append_piece(log, 1, 8000, &first) == SHMQ_OK)
            CHECK(first < 10);
        CHECK_EQ(bounds_of(log).earliest, 0);
        shmq_log_drop(log, pin);
        CHECK_EQ(append_piece(log, 1, 8000, &first), blocks ? SHMQ_FULL : SHMQ_OK);
        CHECK(shmq_log_move(log, cursor, 1, 0, bounds_of(log).latest, UINT64_MAX));
        CHECK_EQ(append_piece(log, 1, 8000, &first), SHMQ_OK);
        end_logs();
    }
}

TEST("a hold is moved only as that of its owner and tag")
{
    struct shmq_log *log = NEW_LOG(.overflow = SHMQ_LOG_BLOCK);
    uint32_t cursor, pin;

    append_bytes(log, 100);
    append_bytes(log, 100);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    CHECK_EQ(shmq_log_hold(log, SHMQ_HOLD_CURSOR, 1, 2, 0, &cursor), SHMQ_OK);
    CHECK_EQ(shmq_log_hold(log, SHMQ_HOLD_PIN, 1, 2, 0, &pin), SHMQ_OK);
    shmq_log_unlock(log);
    CHECK(!shmq_log_move(log, cursor, 3, 2, 1, UINT64_MAX));
    CHECK(!shmq_log_move(log, cursor, 1, 3, 1, UINT64_MAX));
    CHECK(!shmq_log_move(log, pin, 1, 2, 1, UINT64_MAX));
    CHECK_EQ(log->holds[cursor].position, log->holds[pin].position);
    CHECK(shmq_log_move(log, cursor, 1, 2, 1, UINT64_MAX));
    CHECK(log->holds[cursor].position > log->holds[pin].position);
    shmq_log_drop(log, cursor);
    CHECK(!shmq_log_move(log, cursor, 1, 2, 2, UINT64_MAX));
    end_logs();
}

TEST("only the reader that is the farthest behind wakes appenders when it moves")
{
    struct shmq_log *log = NEW_LOG(.overflow = SHMQ_LOG_BLOCK);
    uint32_t cursors[2], room;

    for (int i = 0; i < 4; i++)
        append_bytes(log, 100);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(shmq_log_hold(log, SHMQ_HOLD_CURSOR, 1, 0, 0, &cursors[i]), SHMQ_OK);
    shmq_log_unlock(log);
    room = shmq_log_room(log);
    CHECK(shmq_log_move(log, cursors[0], 1, 0, 3, UINT64_MAX));
    CHECK_EQ(log->h->room, room);
    CHECK_EQ(shmq_log_wait_room(log, room, 1), SHMQ_TIMED_OUT);
    CHECK(shmq_log_move(log, cursors[1], 1, 0, 1, UINT64_MAX));
    CHECK(log->h->room != room);
    CHECK_EQ(log->h->crowded, 0);
    end_logs();
}

TEST("a spin tells how long it took until there is an entry, or the partition has ended")
{
    struct shmq_log *log = NEW_LOG(.overflow = SHMQ_LOG_DROP);

    for (int yields = 0; yields < 2; yields++) {
        int64_t yield_after = yields ? 0 : INT64_MAX;
        uint64_t end = bounds_of(log).committed;

        CHECK_EQ(shmq_log_spin(log, end, 1000, yield_after), -1);
        append_bytes(log, 100);
        CHECK(shmq_log_spin(log, end, 1000000000, yield_after) >= 0);
    }
    shmq_log_delete(log);
    CHECK(shmq_log_spin(log, bounds_of(log).committed, 1000000000, 0) >= 0);
    end_logs();
}

TEST("what is not on disk yet is not overwritten")
{
    struct shmq_log *log = NEW_LOG(.durability = SHMQ_LOG_JOURNAL);
    uint64_t first;

    while (append_piece(log, 1, 8000, &first) == SHMQ_OK)
        CHECK(first < 10);
    CHECK_EQ(bounds_of(log).earliest, 0);
    shmq_log_mark_synced(log, 3);
    CHECK_EQ(append_piece(log, 1, 8000, &first), SHMQ_OK);
    CHECK(bounds_of(log).earliest > 0 && bounds_of(log).earliest <= 3);
    end_logs();
}

static int append_as(struct shmq_log *log, uint64_t producer, uint64_t sequence, uint32_t count,
                     struct shmq_log_appended *out)
{
    struct shmq_log_item items[8] = {0};
    struct shmq_log_piece piece = {.items = items,
                                   .count = count,
                                   .produced = true,
                                   .producer = producer,
                                   .sequence = sequence};
    int status;

    for (int i = 0; i < 8; i++)
        items[i] = (struct shmq_log_item){.value = "", .count = 1};
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    status = shmq_log_append(log, &piece, out);
    shmq_log_unlock(log);
    return status;
}

TEST("a producer's records are appended once, in their order, and without a gap")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_appended out;

    for (uint64_t n = 0; n < 30; n += 3) {
        CHECK_EQ(append_as(log, 9, n, 3, &out), SHMQ_OK);
        CHECK(!out.duplicate && out.first == n);
        CHECK_EQ(append_as(log, 9, n, 3, &out), SHMQ_OK);
        CHECK(out.duplicate && out.first == n);
    }
    CHECK_EQ(append_as(log, 9, 4, 1, &out), SHMQ_OK);
    CHECK(out.duplicate && out.first == 4);
    CHECK_EQ(append_as(log, 9, 31, 1, &out), SHMQ_GAP);
    CHECK_EQ(out.expected, 30);
    CHECK_EQ(bounds_of(log).latest, 30);
    end_logs();
}

/* An appender that died between its commit and what it derives from it: as if all that came
 * after `before` had not been settled. */
static void forget_all_since(struct shmq_log *log, const struct shmq_log_header *before)
{
    atomic_store(&log->h->settled, atomic_load(&before->settled));
    atomic_store(&log->h->next, atomic_load(&before->next));
    log->h->last_begin = before->last_begin;
    log->h->last_seen = before->last_seen;
}

TEST("what a dead appender published and did not settle is derived again")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_appended out;
    struct shmq_log_header before;

    for (int i = 0; i < 100; i++)
        append_bytes(log, 300);
    memcpy(&before, log->h, sizeof before);
    CHECK_EQ(append_as(log, 3, 0, 5, &out), SHMQ_OK);
    memset(log->producers, 0, SHMQ_PRODUCERS * sizeof *log->producers);
    forget_all_since(log, &before);
    CHECK_EQ(bounds_of(log).latest, 105); /* before anybody has mended it */
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    shmq_log_trim_index(log);
    CHECK_EQ(shmq_log_recover(log), SHMQ_OK);
    shmq_log_unlock(log);
    CHECK_EQ(append_as(log, 3, 0, 5, &out), SHMQ_OK);
    CHECK(out.duplicate && out.first == 100);
    CHECK_EQ(append_bytes(log, 10), 105);
    for (uint64_t offset = bounds_of(log).earliest; offset < 106; offset++) {
        struct shmq_log_extent x;

        CHECK_EQ(shmq_log_find(log, offset, UINT64_MAX, 1, 1, UINT64_MAX, &x), SHMQ_OK);
        CHECK_EQ(x.first, offset);
    }
    end_logs();
}

TEST("a reader that has found an entry by the index keeps its place while the index is mended")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_index_entry *entry = &log->index[2];
    struct shmq_log_header before;
    struct shmq_log_extent x;
    uint64_t position;

    for (int i = 0; i < 20; i++)
        append_bytes(log, 1000);
    memcpy(&before, log->h, sizeof before);
    for (int i = 0; i < 20; i++)
        append_bytes(log, 1000);
    forget_all_since(log, &before);
    position = entry->position;
    CHECK(position > before.last_begin && position < shmq_log_committed(log));
    shmq_log_trim_index(log);
    CHECK_EQ(entry->position, UINT64_MAX);
    entry->position = position; /* as the reader has read it                                      */
    CHECK_EQ(shmq_log_find(log, 25, UINT64_MAX, 1, 0, UINT64_MAX, &x), SHMQ_OK);
    CHECK_EQ(x.first, 25);
    end_logs();
}

TEST("records that are too old go")
{
    struct shmq_log *log = NEW_LOG(.retention = 1000000000);
    struct shmq_log_item item = {.value = "", .count = 1};
    struct shmq_log_piece piece = {.items = &item, .count = 1};
    struct shmq_log_appended out;

    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    piece.timestamp = shmq_wall() - 10000000000;
    CHECK_EQ(shmq_log_append(log, &piece, &out), SHMQ_OK);
    piece.timestamp = 0;
    CHECK_EQ(shmq_log_append(log, &piece, &out), SHMQ_OK);
    shmq_log_unlock(log);
    CHECK_EQ(bounds_of(log).earliest, 1);
    CHECK(!shmq_log_is_stale(log));
    end_logs();
}

/* Appends a record with a timestamp of its own; what the partition has seen then. */
static int64_t append_at(struct shmq_log *log, int64_t timestamp)
{
    struct shmq_log_item item = {.value = "own", .value_bytes = 3, .count = 1};
    struct shmq_log_piece piece = {.items = &item, .count = 1, .timestamp = timestamp};
    struct shmq_log_appended out;

    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    CHECK_EQ(shmq_log_append(log, &piece, &out), SHMQ_OK);
    shmq_log_unlock(log);
    CHECK_EQ(out.timestamp, timestamp);
    return log->h->last_seen;
}

TEST("records keep their timestamps, and are found by the largest that the clock allows")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_header before;
    int64_t now = shmq_wall(), seen = 0;
    uint64_t offset;

    for (int i = 0; i < 300; i++) {
        int64_t own = i % 7 == 3 ? now + 1000000000000 : now - 1000000000000 + i - i % 5 * 100;
        int64_t was = seen;

        if (i == 290)
            memcpy(&before, log->h, sizeof before);
        seen = append_at(log, own);
        CHECK(seen >= was && seen <= shmq_wall());
        CHECK(i < 3 || seen >= now);
        CHECK_EQ(shmq_log_at(log, seen, &offset), SHMQ_OK);
        CHECK(offset <= (uint64_t)i);
        CHECK_EQ(shmq_log_at(log, seen + 1, &offset), SHMQ_OK);
        CHECK_EQ(offset, i + 1);
    }
    forget_all_since(log, &before);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    shmq_log_trim_index(log);
    CHECK_EQ(shmq_log_recover(log), SHMQ_OK);
    CHECK_EQ(log->h->last_seen, seen);
    shmq_log_unlock(log);
    end_logs();
}

TEST("records beyond the bytes that are kept go")
{
    struct shmq_log *log = NEW_LOG(.retention_bytes = 20000, .ring_bytes = 1 << 20);

    for (int i = 0; i < 200; i++)
        append_bytes(log, 1000);
    CHECK(bounds_of(log).committed - bounds_of(log).oldest <= 20000);
    CHECK_EQ(read_some(log, bounds_of(log).earliest, 1000), 200 - bounds_of(log).earliest);
    end_logs();
}

/* The bytes of the records that are there, their frames included, without pads. */
static uint64_t bytes_kept(struct shmq_log *log)
{
    struct shmq_log_extent x;

    CHECK_EQ(shmq_log_find(log, bounds_of(log).earliest, UINT64_MAX, UINT64_MAX, UINT64_MAX,
                           UINT64_MAX, &x),
             SHMQ_OK);
    return x.bytes;
}

/* Appends records of up to `most` bytes, many times what is to be kept. */
static void keep_nine_tenths(uint64_t ring, uint64_t kept, uint32_t most, uint64_t seed)
{
    struct shmq_log *log = NEW_LOG(.retention_bytes = kept, .ring_bytes = ring);
    struct chance chance = chance_of(seed);
    uint64_t appended = 0;

    while (appended < 4 * ring) {
        uint64_t end = shmq_log_committed(log), bytes;

        append_bytes(log, 1 + (uint32_t)chance_below(&chance, most));
        appended += shmq_log_committed(log) - end;
        bytes = bytes_kept(log);
        CHECK(appended < 2 * kept || bytes >= kept - kept / 10);
        CHECK(bytes <= kept + most + 64);
    }
}

TEST("nine tenths of the bytes that are to be kept stay, whatever the records")
{
    const uint64_t ring = 1 << 16;

    for (uint32_t most = 64; most <= ring / 4; most *= 4) {
        keep_nine_tenths(ring, ring, most, most);
        keep_nine_tenths(ring, 40000, most, most + 1);
        keep_nine_tenths(4 * ring, ring, most, most + 2);
    }
    keep_nine_tenths(4 * ring, ring, ring - 100, 5);
    end_logs();
}

TEST("what may not go yet stays, and all beyond it that may does")
{
    struct shmq_log *log = NEW_LOG(.retention_bytes = 10000, .ring_bytes = 1 << 16);
    uint32_t hold;

    append_bytes(log, 100);
    append_bytes(log, 100);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    CHECK_EQ(shmq_log_hold(log, SHMQ_HOLD_PIN, 0, 0, 1, &hold), SHMQ_OK);
    shmq_log_unlock(log);
    for (int i = 0; i < 100; i++)
        append_bytes(log, 400);
    CHECK_EQ(bounds_of(log).earliest, 1);
    CHECK_EQ(read_some(log, 1, 1000), 101);
    shmq_log_drop(log, hold);
    append_bytes(log, 400);
    CHECK(bytes_kept(log) <= 10000 && bytes_kept(log) >= 9000);
    end_logs();
}

TEST("a segment that is none is refused before a pointer is formed")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_geometry geo;
    _Alignas(64) char page[SHMQ_PAGE] = {0};

    CHECK_EQ(shmq_log_inspect(page, SHMQ_PAGE, &geo), SHMQ_NOT_READY);
    memcpy(page, log->h, SHMQ_PAGE);
    CHECK_EQ(shmq_log_inspect(page, SHMQ_PAGE, &geo), SHMQ_TRUNCATED);
    page[offsetof(struct shmq_log_header, options) + 16] ^= 1;
    CHECK_EQ(shmq_log_inspect(page, 1 << 30, &geo), SHMQ_DAMAGED);
    memcpy(page, log->h, SHMQ_PAGE);
    page[0] ^= 2;
    CHECK_EQ(shmq_log_inspect(page, 1 << 30, &geo), SHMQ_INCOMPATIBLE);
    end_logs();
}

TEST("bytes that are no entries are told, and lead nowhere outside")
{
    struct shmq_log *log = NEW_LOG();
    struct chance chance = chance_of(3);
    struct shmq_log_extent x;

    for (int round = 0; round < 300; round++) {
        unsigned char *at = log->ring + chance_below(&chance, 2000);
        uint64_t offset;

        while (bounds_of(log).latest < 100)
            append_bytes(log, 50);
        *at ^= (unsigned char)(1 + chance_below(&chance, 255));
        for (offset = 0; offset < 110; offset++) {
            int status = shmq_log_find(log, offset, UINT64_MAX, 1, 1, UINT64_MAX, &x);

            CHECK(status == SHMQ_OK || status == SHMQ_OUT_OF_RANGE || status == SHMQ_DAMAGED);
        }
    }
    end_logs();
}

TEST("a deleted partition says so to all")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_extent x;

    append_bytes(log, 10);
    shmq_log_delete(another_log(log));
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_DELETED);
    CHECK_EQ(shmq_log_find(log, 0, UINT64_MAX, 1, 1, UINT64_MAX, &x), SHMQ_DELETED);
    shmq_log_fail(log, 28);
    CHECK_EQ(shmq_log_error(log), 28);
    log->h->writer = dead_number(); /* its disk may have room again */
    CHECK_EQ(shmq_log_error(log), 0);
    CHECK_EQ(shmq_log_wait_synced(log, 1, 1000), SHMQ_DELETED);
    end_logs();
}

/* ---- loans ---- */

struct borrowed {
    struct shmq_log_loan loan;
    struct shmq_log_item item;
};

/* Borrows a place for a value of that many bytes; the status. */
static int borrow(struct shmq_log *log, uint32_t bytes, struct borrowed *b)
{
    struct shmq_log_piece piece = {.loan = &b->loan, .items = &b->item, .count = 1};
    struct shmq_log_appended out;
    int status;

    *b = (struct borrowed){.loan = {.owner = 7}, .item = {.value_bytes = bytes, .count = 1}};
    CHECK_EQ(shmq_log_lock(log, 1000000000), SHMQ_OK);
    status = shmq_log_append(log, &piece, &out);
    shmq_log_unlock(log);
    return status;
}

/* Fills and appends it; its offset. */
static uint64_t give_back(struct shmq_log *log, struct borrowed *b, uint32_t bytes)
{
    struct shmq_log_piece piece = {.loan = &b->loan, .items = &b->item, .count = 1};
    struct shmq_log_appended out;

    CHECK_EQ(shmq_log_lock(log, 1000000000), SHMQ_OK);
    memset(b->loan.value, (int)(atomic_load(&log->h->next) % 251), bytes);
    b->item.value_bytes = bytes;
    CHECK_EQ(shmq_log_append(log, &piece, &out), SHMQ_OK);
    shmq_log_unlock(log);
    return out.first;
}

static void end_loan(struct shmq_log *log, struct borrowed *b)
{
    CHECK_EQ(shmq_log_lock(log, 1000000000), SHMQ_OK);
    shmq_log_end_loan(log, &b->loan);
    shmq_log_unlock(log);
}

static void lend_at_random(struct shmq_log *log, struct shmq_log *other)
{
    struct chance chance = chance_of(13);
    struct borrowed b;
    unsigned char mark = 1;
    bool open = false;
    uint32_t bytes = 0;
    uint64_t next = 0, first, copies = 0, in_place = 0;

    for (int turn = 0; turn < 6000; turn++) {
        uint64_t dice = chance_below(&chance, 30);
        struct shmq_log_bounds bounds;

        if (!open && dice < 3) {
            bytes = (uint32_t)chance_below(&chance, 16000);
            CHECK_EQ(borrow(log, bytes, &b), SHMQ_OK);
            memset(b.loan.value, mark = (unsigned char)turn, bytes);
            open = true;
        } else if (open && dice < 3) {
            for (uint32_t i = 0; i < bytes; i++)
                CHECK_EQ(b.loan.value[i], mark); /* nothing was written over it          */
            if (dice) {
                *(shmq_log_committed(log) > log->holds[b.loan.hold].position ? &copies
                                                                             : &in_place) += 1;
                CHECK_EQ(give_back(log, &b, (uint32_t)chance_below(&chance, bytes + 1)), next);
                next++;
            } else {
                end_loan(log, &b);
            }
            open = false;
            CHECK_EQ(atomic_load(&log->h->loaned), 0);
        } else {
            uint32_t count = 1 + (uint32_t)chance_below(&chance, 5);

            if (dice % 2 ||
                !append_short(other, count, (uint32_t)chance_below(&chance, 900), &first))
                CHECK_EQ(append_piece(other, count, (uint32_t)chance_below(&chance, 3000), &first),
                         SHMQ_OK);
            CHECK_EQ(first, next);
            next += count;
        }
        if (log->durable)
            shmq_log_mark_synced(log, next);
        bounds = bounds_of(other);
        CHECK_EQ(bounds.latest, next);
        for (uint64_t at = bounds.earliest; at < next;) {
            uint64_t got = read_some(other, at, UINT32_MAX);

            CHECK(got > 0);
            at += got;
        }
    }
    CHECK(copies > 50 && in_place > 20);
}

TEST("a loan is appended in its place or behind what came meanwhile, through many rounds")
{
    struct shmq_log *log = NEW_LOG();

    lend_at_random(log, another_log(log));
    end_logs();
}

TEST("a loan of a durable stream has its checksum")
{
    struct shmq_log *log = NEW_LOG(.durability = SHMQ_LOG_JOURNAL);

    lend_at_random(log, another_log(log));
    end_logs();
}

TEST("a loan that stays open stops nobody, and nothing is written there")
{
    struct shmq_log *log = NEW_LOG();
    struct borrowed b, other;
    uint64_t first;

    append_bytes(log, 1000);
    CHECK_EQ(borrow(log, 16000, &b), SHMQ_OK);
    memset(b.loan.value, 0xAB, 16000);
    CHECK_EQ(borrow(log, 10, &other), SHMQ_BUSY);
    for (int i = 0; i < 200; i++)
        append_bytes(log, 16000);
    CHECK_EQ(append_piece(log, 2, 16000, &first), SHMQ_OK);
    for (int i = 0; i < 16000; i++)
        CHECK_EQ(b.loan.value[i], 0xAB);
    end_loan(log, &b);
    end_loan(log, &b);
    CHECK_EQ(borrow(log, 10, &other), SHMQ_OK);
    CHECK_EQ(give_back(log, &other, 10), first + 2);
    end_logs();
}

TEST("a loan that was ended for its process is not appended, and ends no other loan")
{
    struct shmq_log *log = NEW_LOG();
    struct shmq_log_appended out;
    struct borrowed b, other;
    struct shmq_log_piece piece = {.loan = &b.loan, .items = &b.item, .count = 1};

    append_bytes(log, 1000);
    CHECK_EQ(borrow(log, 100, &b), SHMQ_OK);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    shmq_log_drop(log, b.loan.hold);
    shmq_log_unlock(log);
    append_bytes(log, 500);
    CHECK_EQ(borrow(log, 100, &other), SHMQ_OK);
    CHECK_EQ(other.loan.hold, b.loan.hold);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    CHECK_EQ(shmq_log_append(log, &piece, &out), SHMQ_OUT_OF_RANGE);
    shmq_log_end_loan(log, &b.loan);
    shmq_log_unlock(log);
    CHECK_EQ(give_back(log, &other, 100), 2);
    end_logs();
}

TEST("a stream with retention_bytes lends no place; a sealed partition appends no loan")
{
    struct borrowed b;
    struct shmq_log_piece piece = {.loan = &b.loan, .items = &b.item, .count = 1};
    struct shmq_log_appended out;
    struct shmq_log *log = NEW_LOG(.retention_bytes = 8192);

    CHECK_EQ(borrow(log, 100, &b), SHMQ_BUSY);
    log = NEW_LOG();
    CHECK_EQ(borrow(log, 65536, &b), SHMQ_TOO_LARGE);
    CHECK_EQ(borrow(log, 100, &b), SHMQ_OK);
    shmq_log_seal(log);
    CHECK_EQ(shmq_log_lock(log, 0), SHMQ_OK);
    CHECK_EQ(shmq_log_append(log, &piece, &out), SHMQ_SEALED);
    shmq_log_end_loan(log, &b.loan);
    shmq_log_unlock(log);
    CHECK_EQ(borrow(log, 100, &b), SHMQ_SEALED);
    end_logs();
}
