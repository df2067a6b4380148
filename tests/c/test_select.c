/* Choosing: the order of what is meant, and what stays, whoever else takes and returns. */
#include "fixture.h"

#include <string.h>

#include "queue/filter.h"

/* Is meant: what has a body of one byte. */
static const unsigned char small[] = {
    SHMQ_OP_TEST, SHMQ_FIELD_SIZE, SHMQ_IS_EQUAL, SHMQ_CONST_INT, 0, 0, 0, 0, 0, 0, 0, 1};

static struct shmq_selection choice_in(struct shmq_queue *q)
{
    struct shmq_selection choice;

    shmq_select_begin(q, &choice, &(struct shmq_filter){small, sizeof small});
    return choice;
}

/* The next one that is meant, however long it takes; 0: none. */
static uint64_t go_on(struct shmq_queue *q, struct shmq_selection *choice, struct shmq_view *view)
{
    int status;

    while ((status = shmq_select(q, choice, now, true, view)) == SHMQ_EMPTY && choice->more)
        shmq_select_again(choice);
    CHECK(status == SHMQ_OK || status == SHMQ_EMPTY);
    return status == SHMQ_OK ? view->seq : 0;
}

static uint64_t chosen(struct shmq_queue *q)
{
    struct shmq_selection choice = choice_in(q);
    struct shmq_view view;

    return go_on(q, &choice, &view);
}

/* Puts `count` messages of which one in `each` is meant. */
static void fill(struct shmq_queue *q, uint32_t count, uint32_t each)
{
    for (uint32_t i = 0; i < count; i++)
        put_bytes(q, i % each ? 2 : 1);
}

TEST("what is meant is leased in its order, and the others stay in theirs")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);

    fill(q, 10, 4);
    CHECK_EQ(chosen(q), 1);
    CHECK_EQ(chosen(q), 5);
    CHECK_EQ(chosen(q), 9);
    CHECK_EQ(chosen(q), 0);
    CHECK_WELL(q);
    CHECK_EQ(q->h->visible, 7);
    for (uint64_t seq = 2; seq <= 10; seq++)
        if (seq % 4 != 1)
            CHECK_EQ(next_seq(q), seq);
}

TEST("a higher priority is chosen first, and one that came back has its place")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);
    struct shmq_view view;
    struct shmq_selection choice = choice_in(q);

    put_bytes(q, 1);
    put_bytes(q, 1);
    put_bytes(q, 1);
    PUT(q, .body = "a", .body_bytes = 1, .priority = 0);
    PUT(q, .body = "a", .body_bytes = 1, .priority = 2);
    CHECK_EQ(chosen(q), 5);
    CHECK_EQ(go_on(q, &choice, &view), 1);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    CHECK_EQ(chosen(q), 1);
    CHECK_EQ(chosen(q), 2);
    CHECK_EQ(chosen(q), 3);
    CHECK_EQ(chosen(q), 4);
    CHECK_EQ(chosen(q), 0);
}

TEST("a long search lets the lock go, and goes on where it was")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4096, .arena_bytes = 1 << 20);
    struct shmq_selection choice;
    struct shmq_view view;
    uint32_t holds = 1;

    fill(q, 3000, 3001);
    CHECK_EQ(chosen(q), 1);
    put_bytes(q, 1);
    choice = choice_in(q);
    while (shmq_select(q, &choice, now, true, &view) == SHMQ_EMPTY && choice.more) {
        CHECK_EQ(next_seq(q), holds + 1); /* from the front meanwhile */
        shmq_select_again(&choice);
        holds++;
    }
    CHECK_EQ(view.seq, 3001);
    CHECK(holds >= 10 && holds < 20);
}

TEST("the longer a filter is, the fewer messages are looked at while the lock is held")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4096, .arena_bytes = 1 << 20);
    static unsigned char code[1000 * (sizeof small + 1)];
    struct shmq_filter filter = {code, 0};
    struct shmq_selection choice;
    struct shmq_view view;
    uint32_t holds = 1;

    for (uint32_t i = 0; i < 1000; i++) {
        memcpy(code + filter.bytes, small, sizeof small);
        filter.bytes += sizeof small;
        if (i)
            code[filter.bytes++] = SHMQ_OP_OR;
    }
    CHECK(!shmq_filter_fault(&filter));
    fill(q, 40, 41);
    CHECK_EQ(chosen(q), 1);
    put_bytes(q, 1);
    shmq_select_begin(q, &choice, &filter);
    while (shmq_select(q, &choice, now, true, &view) == SHMQ_EMPTY && choice.more) {
        shmq_select_again(&choice);
        holds++;
    }
    CHECK_EQ(view.seq, 41);
    CHECK(holds >= 10);
}

TEST("a search goes on, though the message it stood at is gone")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4096, .arena_bytes = 1 << 20);
    struct shmq_selection choice;
    struct shmq_view view, taken;

    fill(q, 1000, 1001);
    CHECK_EQ(chosen(q), 1);
    put_bytes(q, 1);
    choice = choice_in(q);
    CHECK_EQ(shmq_select(q, &choice, now, true, &view), SHMQ_EMPTY);
    CHECK(choice.more);
    CHECK_EQ(shmq_lease_at(q, choice.at, choice.seq, now, SECOND, &taken), SHMQ_OK);
    shmq_select_again(&choice);
    CHECK_EQ(go_on(q, &choice, &view), 1001);
    CHECK_WELL(q);
}

TEST("many that came back are looked through by parts, the first of them first")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8192, .arena_bytes = 1 << 20);
    struct shmq_selection choice;
    struct shmq_view view;
    uint32_t count = 2000;
    static uint64_t receipts[2000];

    fill(q, count, 500); /* 1, 501, 1001, 1501 */
    for (uint32_t i = 0; i < count; i++)
        receipts[i] = take_next(q).receipt;
    put_bytes(q, 2);
    for (uint32_t i = count; i-- > 0;)
        CHECK_EQ(shmq_nack(q, receipts[i], 0, now), SHMQ_OK);
    CHECK_WELL(q);
    choice = choice_in(q);
    CHECK_EQ(go_on(q, &choice, &view), 1);
    CHECK_EQ(shmq_select(q, &choice, now, true, &view), SHMQ_EMPTY);
    CHECK(choice.more);
    shmq_select_again(&choice);
    CHECK_EQ(go_on(q, &choice, &view), 501);
    CHECK_EQ(go_on(q, &choice, &view), 1001);
    CHECK_EQ(go_on(q, &choice, &view), 1501);
    CHECK_EQ(go_on(q, &choice, &view), 0);
    CHECK_WELL(q);
}

TEST("the front of a group that is not meant holds its group")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);

    PUT(q, .body = "ab", .body_bytes = 2, .group = 7);
    PUT(q, .body = "a", .body_bytes = 1, .group = 7);
    PUT(q, .body = "a", .body_bytes = 1, .group = 8);
    CHECK_EQ(chosen(q), 3);
    CHECK_EQ(chosen(q), 0);
    CHECK_EQ(next_seq(q), 1);
    CHECK_EQ(chosen(q), 0);
}

TEST("what has expired is not chosen, and what is due is")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 64);

    PUT(q, .body = "a", .body_bytes = 1, .ttl = SECOND);
    PUT(q, .body = "a", .body_bytes = 1, .delay = 2 * SECOND);
    now += SECOND;
    CHECK_EQ(chosen(q), 0);
    now += SECOND;
    CHECK_EQ(chosen(q), 2);
    CHECK_WELL(q);
}

TEST("of random puts, leases and returns, each search finds the first that is meant")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1024, .arena_bytes = 1 << 20);
    struct chance chance = chance_of(11);
    struct shmq_view held[64], view;
    uint32_t count = 0;

    for (int round = 0; round < 20000; round++) {
        uint64_t action = chance_below(&chance, 10), seq;

        if (action < 5 && q->h->live < shmq_capacity(q)) {
            PUT(q, .body = "ab", .body_bytes = 1 + chance_below(&chance, 2),
                .priority = (uint8_t)chance_below(&chance, 3));
        } else if (action < 7 && count < 64 && q->h->ready) {
            held[count++] = take_next(q);
        } else if (action < 8 && count) {
            CHECK_EQ(shmq_nack(q, held[--count].receipt, 0, now), SHMQ_OK);
        } else if (action < 9 && count) {
            CHECK_EQ(shmq_ack(q, held[--count].receipt, now), SHMQ_OK);
        } else if (count < 64) {
            struct shmq_selection choice = choice_in(q);
            uint64_t best = UINT64_MAX, wanted = 0;

            for (uint32_t at = 0; at < q->h->slots_made; at++) {
                struct shmq_slot *s = &q->slots[at];

                if (shmq_state_of(shmq_word(s)) == SHMQ_READY && s->body_bytes == 1 &&
                    shmq_key_of(s) < best) {
                    best = shmq_key_of(s);
                    wanted = s->seq;
                }
            }
            seq = go_on(q, &choice, &view);
            CHECK_EQ(seq, wanted);
            if (seq)
                held[count++] = view;
        }
    }
    CHECK_WELL(q);
}
