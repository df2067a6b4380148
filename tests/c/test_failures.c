/* Failed deliveries, counted by the type of their error. */
#include "fixture.h"

#include "base/endian.h"
#include "queue/failures.h"

#include <stdio.h>
#include <string.h>

/* Fails one delivery with an error {"type": type, "x": [1]}. */
static void fail(struct shmq_queue *q, const char *type, size_t bytes)
{
    static unsigned char packed[16 + UINT16_MAX] = "\x82\xa1x\x91\x01\xa4type\xda";
    struct shmq_view view;

    shmq_store16(packed + 11, (uint16_t)bytes);
    memcpy(packed + 13, type, bytes);
    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(
        shmq_keep_error(q, view.receipt, (struct shmq_text){packed, (uint32_t)(13 + bytes)}, now),
        SHMQ_OK);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
}

/* The count of the type; 0 if it has no entry. */
static uint64_t count_of(struct shmq_queue *q, const char *type, size_t bytes)
{
    struct shmq_text name;
    uint64_t count;

    for (uint32_t at = 0; shmq_failures_of(q, at, &name, &count); at++)
        if (name.bytes == bytes && !memcmp(name.at, type, bytes))
            return count;
    return 0;
}

#define FAIL(q, type) fail(q, type, strlen(type))
#define COUNT(q, type) count_of(q, type, strlen(type))

TEST("each type is counted, and a failure without an error is not")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    FAIL(q, "ValueError");
    FAIL(q, "KeyError");
    FAIL(q, "ValueError");
    FAIL(q, "");
    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(COUNT(q, "ValueError"), 2);
    CHECK_EQ(COUNT(q, "KeyError"), 1);
    CHECK_EQ(COUNT(q, ""), 1);
    CHECK_EQ(q->h->failure_types, 3);
    CHECK_EQ(q->h->failed, 4);
    CHECK_WELL(q);
}

TEST("an error that is not a map, or whose type is not a text, has no type")
{
    static const char *const odd[] = {"\xa4oops", "\x81\xa4type\x01", "\x81\xa4type", "\x80",
                                      "\xdf"};
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        shmq_count_failure(
            q, (struct shmq_text){(const unsigned char *)odd[i], (uint32_t)strlen(odd[i])});
    CHECK_EQ(COUNT(q, ""), sizeof odd / sizeof *odd);
    CHECK_EQ(q->h->failure_types, 1);
}

TEST("a settlement that is too late is not counted")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_keep_error(q, view.receipt, (struct shmq_text){NULL, 0}, now), SHMQ_STALE);
    CHECK_EQ(q->h->failed, 0);
}

TEST("types beyond the entries count in the total alone")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    char type[16];

    for (int i = 0; i < 100; i++) {
        snprintf(type, sizeof type, "Error%d", i);
        FAIL(q, type);
        FAIL(q, type);
    }
    FAIL(q, "Error0");
    CHECK_EQ(q->h->failure_types, SHMQ_FAILURE_TYPES);
    CHECK_EQ(q->h->failed, 201);
    CHECK_EQ(COUNT(q, "Error0"), 3);
    CHECK_EQ(COUNT(q, "Error63"), 2);
    CHECK_EQ(COUNT(q, "Error64"), 0);
    CHECK_WELL(q);
}

TEST("a long name loses its beginning, at a whole character")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    char type[1003];

    memset(type, 'x', sizeof type);
    for (size_t i = 0; i + 3 <= sizeof type - 1; i += 3)
        memcpy(type + i, "\xe2\x82\xac", 3);
    fail(q, type, 1002);
    CHECK_EQ(count_of(q, type, 117), 1); /* 39 characters of 3 bytes; 40 are too long */
    fail(q, type, 119);
    CHECK_EQ(q->h->failure_types, 2);
    fail(q, "bbbbbb", 6);
    CHECK_EQ(q->h->failed, 3);
    CHECK_WELL(q);
}

TEST("without memory for the entries a failure counts in the total, and later ones get theirs")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);

    put_text(q, "a");
    struct shmq_view view = take_next(q);
    starve(q);
    CHECK_EQ(
        shmq_keep_error(q, view.receipt, (struct shmq_text){(const unsigned char *)"\x80", 1}, now),
        SHMQ_OK);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    feed(q);
    CHECK_EQ(q->h->failed, 1);
    CHECK_EQ(q->h->failure_types, 0);
    FAIL(q, "KeyError");
    CHECK_EQ(COUNT(q, "KeyError"), 1);
    CHECK_WELL(q);
}

TEST("recovery and a purge keep the counts")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    uint64_t removed;

    FAIL(q, "KeyError");
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(COUNT(q, "KeyError"), 1);
    CHECK_WELL(q);
}

TEST("a damaged name is not shown, and what it counted is part of the rest")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_text name;
    uint64_t count;

    FAIL(q, "KeyError");
    q->failures[0].name[0] = (char)0xff;
    CHECK(!shmq_failures_of(q, 0, &name, &count));
    CHECK(shmq_check(q));
    q->failures[0].name[0] = 'K';
    q->failures[0].bytes = 255;
    CHECK(!shmq_failures_of(q, 0, &name, &count));
    FAIL(q, "KeyError");
    CHECK_EQ(q->h->failure_types, 2);
    CHECK_EQ(q->h->failed, 2);
    q->h->failure_types = UINT32_MAX;
    CHECK(!shmq_failures_of(q, SHMQ_FAILURE_TYPES, &name, &count));
    FAIL(q, "OSError");
    CHECK_EQ(q->h->failed, 3);
}
