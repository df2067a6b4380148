/* The error of a failed delivery: kept with the message, read with its properties, and freed. */
#include "fixture.h"

#include "queue/amend.h"
#include "queue/lock.h"

#include <stdio.h>

#define TEXT(text) ((struct shmq_text){(const unsigned char *)(text), (uint32_t)strlen(text)})

static const char meta[] = "\x82\xa5group\xa1g\xa1x\x01"; /* {"group": "g", "x": 1} */

static bool meta_is(const struct shmq_view *view, const char *text)
{
    return view->meta_bytes == strlen(text) && !memcmp(view->meta, text, view->meta_bytes);
}

static int fail(struct shmq_queue *q, uint64_t receipt, const char *error)
{
    int status = shmq_keep_error(q, receipt, TEXT(error), now);

    return status ? status : shmq_nack(q, receipt, 0, now);
}

TEST("a message keeps the error of its last failure")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(fail(q, view.receipt, "\xa4oops"), SHMQ_OK);
    CHECK_WELL(q);
    view = take_next(q);
    CHECK(meta_is(&view, "\x81\xa5"
                         "error\xa4oops"));
    CHECK(body_is(&view, "a"));
    CHECK_EQ(fail(q, view.receipt,
                  "\xa5"
                  "again"),
             SHMQ_OK);
    CHECK_WELL(q);
    view = take_next(q);
    CHECK(meta_is(&view, "\x81\xa5"
                         "error\xa5"
                         "again"));
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(q->h->amended, 0);
    CHECK_EQ(q->h->amended_units, 0);
    CHECK_WELL(q);
}

TEST("the properties that were put are kept with it")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    PUT(q, .body = "a", .body_bytes = 1, .meta = meta, .meta_bytes = sizeof meta - 1);
    view = take_next(q);
    CHECK_EQ(fail(q, view.receipt, "\xa4oops"), SHMQ_OK);
    view = take_next(q);
    CHECK(meta_is(&view, "\x83\xa5group\xa1g\xa1x\x01\xa5"
                         "error\xa4oops"));
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("an error that was put is replaced, wherever it stands")
{
    static const char put[] = "\x83\xa1"
                              "a\x01\xa5"
                              "error\x92\x01\x02\xa1z\x02";
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    PUT(q, .body = "a", .body_bytes = 1, .meta = put, .meta_bytes = sizeof put - 1);
    view = take_next(q);
    CHECK_EQ(fail(q, view.receipt, "\xc3"), SHMQ_OK);
    view = take_next(q);
    CHECK(meta_is(&view, "\x83\xa1"
                         "a\x01\xa1z\x02\xa5"
                         "error\xc3"));
}

TEST("a slot's next message has no error of the one before")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(fail(q, view.receipt, "\xa4oops"), SHMQ_OK);
    view = take_next(q);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    put_text(q, "b");
    view = take_next(q);
    CHECK_EQ(view.meta_bytes, 0);
    CHECK_WELL(q);
}

TEST("a slot that was never used has none, while others have")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(fail(q, view.receipt, "\xa4oops"), SHMQ_OK);
    view = reserve(q, 3);
    CHECK_EQ(view.meta_bytes, 0);
    CHECK_EQ(shmq_abandon(q, view.receipt), SHMQ_OK);
    CHECK_WELL(q);
}

TEST("a settlement that is too late keeps no error")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(fail(q, view.receipt, "\xa4oops"), SHMQ_STALE);
    CHECK_EQ(q->h->amended, 0);
    CHECK_WELL(q);
}

TEST("errors take an eighth of the arena; beyond it, and without memory, a settlement has none")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 200, .policies[0].max_deliveries = 0);
    char error[3 + 1000] = "\xda\x03\xe8";
    struct shmq_view view;

    memset(error + 3, 'x', 1000);
    for (int i = 0; i < 20; i++)
        put_text(q, "a");
    for (int i = 0; i < 20; i++) {
        view = take_next(q);
        CHECK_EQ(shmq_keep_error(q, view.receipt,
                                 (struct shmq_text){(unsigned char *)error, sizeof error}, now),
                 SHMQ_OK);
        CHECK_EQ(shmq_nack(q, view.receipt, SECOND, now), SHMQ_OK);
        CHECK_WELL(q);
    }
    CHECK(q->h->amended > 0 && q->h->amended < 20);
    CHECK(q->h->amended_units <= q->geo.units / SHMQ_AMENDED_PART);
    now += 2 * SECOND;
    CHECK_EQ(drain(q), 20);
    CHECK_EQ(q->h->amended, 0);
    CHECK_WELL(q);
}

TEST("without memory for it, a settlement has no error")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    starve(q);
    CHECK_EQ(fail(q, view.receipt, "\xa4oops"), SHMQ_OK);
    feed(q);
    view = take_next(q);
    CHECK_EQ(view.meta_bytes, 0);
    CHECK_WELL(q);
}

TEST("recovery keeps the errors of living messages alone")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    struct shmq_view view;

    for (int i = 0; i < 4; i++)
        put_text(q, "a");
    for (int i = 0; i < 4; i++) {
        view = take_next(q);
        CHECK_EQ(shmq_keep_error(q, view.receipt, TEXT("\xa4oops"), now), SHMQ_OK);
        CHECK_EQ(shmq_nack(q, view.receipt, SECOND, now), SHMQ_OK);
    }
    CHECK_EQ(q->h->amended, 4);
    CHECK_EQ(shmq_recover(q), SHMQ_OK);
    CHECK_EQ(q->h->amended, 4);
    CHECK_WELL(q);
    uint64_t removed;
    CHECK_EQ(shmq_purge(q, &removed), SHMQ_OK);
    CHECK_EQ(removed, 4);
    CHECK_EQ(q->h->amended, 0);
    CHECK_WELL(q);
}

TEST("a dead letter is taken with its error")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .policies[0].max_deliveries = 1,
                                     .dead_letters = 1);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(fail(q, view.receipt, "\xa4oops"), SHMQ_OK);
    CHECK_EQ(shmq_take_dead(q, &view), SHMQ_OK);
    CHECK(meta_is(&view, "\x81\xa5"
                         "error\xa4oops"));
    CHECK_EQ(shmq_moved(q, view.receipt), SHMQ_OK);
    CHECK_EQ(q->h->amended, 0);
    CHECK_WELL(q);
}

TEST("a block out of bounds is damage, and nothing outside is read")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(q);
    CHECK_EQ(fail(q, view.receipt, "\xa4oops"), SHMQ_OK);
    q->amended[0].block = UINT32_MAX;
    CHECK_EQ(shmq_lease(q, now, true, &view), SHMQ_DAMAGED);
    CHECK_EQ(view.meta_bytes, 0);
}
