/* What is to be sent, in pieces of any size. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "server/outbox.h"

#define MOST 4096

static uint32_t gone;

static void count_gone(struct shmq_outgoing_body *outgoing_body)
{
    (void)outgoing_body;
    gone++;
}

static void add(struct shmq_outbox *box, const char *text)
{
    unsigned char *to = shmq_outbox_room(box, strlen(text));

    CHECK(to);
    memcpy(to, text, strlen(text));
    box->used += strlen(text);
}

static void put(struct shmq_outbox *box, const char *body)
{
    CHECK(shmq_outbox_put(box, (const unsigned char *)body, strlen(body), NULL, 0));
}

/* Sends all, `step` bytes at a time, and compares. */
static void check_sent(struct shmq_outbox *box, size_t step, const char *wanted)
{
    char sent[MOST] = "";
    size_t used = 0;

    while (shmq_pending(box)) {
        struct iovec pieces[3];
        uint32_t count = shmq_outbox_pieces(box, pieces, 3);
        size_t left = step;

        CHECK(count > 0);
        for (uint32_t i = 0; i < count && left; i++) {
            size_t size = pieces[i].iov_len < left ? pieces[i].iov_len : left;

            CHECK(size && used + size < MOST);
            memcpy(sent + used, pieces[i].iov_base, size);
            used += size;
            left -= size;
        }
        shmq_outbox_sent(box, step - left, count_gone);
    }
    CHECK_EQ(used, strlen(wanted));
    CHECK(!memcmp(sent, wanted, used));
}

TEST("bytes and bodies go in their order, however they are cut")
{
    for (size_t step = 1; step < 24; step++) {
        struct shmq_outbox box = {0};

        gone = 0;
        put(&box, "first");
        add(&box, "head");
        put(&box, "body");
        put(&box, "another");
        add(&box, "a");
        add(&box, "b");
        CHECK_EQ(shmq_pending(&box), 22);
        check_sent(&box, step, "firstheadbodyanotherab");
        CHECK_EQ(gone, 3);
        add(&box, "more");
        put(&box, "last");
        check_sent(&box, step, "morelast");
        CHECK_EQ(gone, 4);
        shmq_outbox_clear(&box, count_gone);
        CHECK_EQ(gone, 4);
    }
}

TEST("what is dropped lets its bodies go")
{
    struct shmq_outbox box = {0};

    gone = 0;
    put(&box, "one");
    add(&box, "x");
    put(&box, "two");
    shmq_outbox_sent(&box, 4, count_gone);
    CHECK_EQ(gone, 1);
    shmq_outbox_clear(&box, count_gone);
    CHECK_EQ(gone, 2);
    CHECK_EQ(shmq_pending(&box), 0);
}

TEST("a peer that never reads all of it does not make it grow")
{
    struct shmq_outbox box = {0};
    char text[1001];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    add(&box, text);
    for (int round = 0; round < 10000; round++) {
        add(&box, text);
        shmq_outbox_sent(&box, 1000, count_gone);
    }
    CHECK_EQ(shmq_pending(&box), 1000);
    CHECK(box.room < 300 << 10);
    shmq_outbox_clear(&box, count_gone);
}

TEST("nor do bodies, if there is always one more")
{
    struct shmq_outbox box = {0};

    put(&box, "body");
    for (int round = 0; round < 10000; round++) {
        add(&box, "head");
        put(&box, "body");
        shmq_outbox_sent(&box, 8, count_gone);
        CHECK_EQ(shmq_pending(&box), 4);
    }
    CHECK(box.outgoing_body_room < 64);
    shmq_outbox_clear(&box, count_gone);
}
