/* Moving a message from one queue to another, exactly once whoever dies. */
#include "queue/index.h"
#include "queue/segment.h"
#include "queue/transition.h"
#include "fixture.h"

#include <string.h>

#define SOURCE 11u
#define TARGET 12u

static struct shmq_queue *new_source(void)
{
    return NEW_QUEUE(.queue_id = SOURCE, .dead_letters = 1, .capacity = 16);
}

static struct shmq_queue *new_target(void) { return NEW_QUEUE(.queue_id = TARGET, .capacity = 8); }

static void reject_next(struct shmq_queue *q)
{
    struct shmq_view view = take_next(q);

    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
}

/* Stages a copy of what was taken; its receipt. */
static uint64_t stage(struct shmq_queue *target, const struct shmq_view *taken)
{
    struct shmq_put put = {.body_bytes = taken->body_bytes,
                           .priority = taken->priority,
                           .ttl = -1,
                           .origin_queue = SOURCE,
                           .origin_seq = taken->seq};
    struct shmq_view view;
    uint64_t seq;

    shmq_void_copies(target, SOURCE, taken->seq, 0);
    CHECK_EQ(shmq_reserve(target, taken->body_bytes, 0, now, NULL, &view, &seq), SHMQ_OK);
    memcpy((char *)view.body, taken->body, taken->body_bytes);
    CHECK_EQ(shmq_stage(target, view.receipt, &put, now), SHMQ_OK);
    CHECK_WELL(target);
    return view.receipt;
}

static struct shmq_view take_dead(struct shmq_queue *q)
{
    struct shmq_view view;

    CHECK_EQ(shmq_take_dead(q, &view), SHMQ_OK);
    return view;
}

static bool has_orphan(struct shmq_queue *q, uint64_t *receipt)
{
    struct shmq_origin origin;
    bool found = shmq_find_orphan(q, 0, &origin) == SHMQ_OK;

    if (found)
        *receipt = origin.receipt;
    return found;
}

/* The mover of this handle died: another one notices. */
static void die(struct shmq_queue *dead, struct shmq_queue *witness)
{
    shmq_reclaim(witness, dead->attachment, witness->attachments[dead->attachment].process, now);
}

TEST("a dead message is moved: it leaves the one queue and is served by the other")
{
    struct shmq_queue *source = new_source(), *target = new_target();
    struct shmq_view taken, view;
    uint64_t staged;

    put_text(source, "body");
    reject_next(source);
    taken = take_dead(source);
    CHECK_EQ(taken.reason, SHMQ_REJECTED);
    CHECK_EQ(taken.deliveries, 1);
    staged = stage(target, &taken);
    CHECK_EQ(next_seq(target), 0);
    CHECK(shmq_still_moves(source, taken.seq, SHMQ_NO_ROW));
    CHECK_EQ(shmq_moved(source, taken.receipt), SHMQ_OK);
    CHECK(!shmq_still_moves(source, taken.seq, SHMQ_NO_ROW));
    CHECK_EQ(shmq_commit_staged(target, staged, now), SHMQ_OK);
    view = take_next(target);
    CHECK(body_is(&view, "body"));
    CHECK_EQ(source->h->live, 0);
    CHECK_EQ(source->h->dead_lettered, 1);
    CHECK_EQ(target->h->staged, 0);
    CHECK_WELL(source);
    CHECK_WELL(target);
}

TEST("dead messages are moved in the order of their deaths, each by one mover")
{
    struct shmq_queue *q = new_source(), *other = another_handle(q);
    struct shmq_view view;

    for (int i = 0; i < 3; i++)
        put_bytes(q, 4);
    for (int i = 0; i < 3; i++)
        reject_next(q);
    CHECK_EQ(take_dead(q).seq, 1);
    CHECK_EQ(take_dead(other).seq, 2);
    CHECK_EQ(take_dead(q).seq, 3);
    CHECK_EQ(shmq_take_dead(other, &view), SHMQ_EMPTY);
    CHECK_WELL(q);
}

TEST("a receipt of a move settles it once, and nothing else")
{
    struct shmq_queue *source = new_source();
    struct shmq_view taken;

    put_text(source, "body");
    reject_next(source);
    taken = take_dead(source);
    CHECK_EQ(shmq_ack(source, taken.receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_moved(source, taken.receipt + (1ull << SHMQ_SERIAL_SHIFT)), SHMQ_STALE);
    CHECK_EQ(shmq_moved(source, taken.receipt), SHMQ_OK);
    CHECK_EQ(shmq_moved(source, taken.receipt), SHMQ_STALE);
    CHECK_EQ(shmq_untake(source, taken.receipt), SHMQ_STALE);
    CHECK_WELL(source);
}

TEST("a message that could not be moved is back where it was")
{
    struct shmq_queue *source = new_source();
    struct shmq_view taken;

    put_text(source, "dead");
    reject_next(source);
    taken = take_dead(source);
    CHECK_EQ(shmq_untake(source, taken.receipt), SHMQ_OK);
    CHECK_EQ(state_at(source, 0), SHMQ_DEAD);
    CHECK_WELL(source);
    CHECK_EQ(take_dead(source).reason, SHMQ_REJECTED);
    put_text(source, "one");
    put_text(source, "two");
    CHECK_EQ(shmq_take(source, 1, 2, &taken), SHMQ_OK);
    CHECK_EQ(shmq_untake(source, taken.receipt), SHMQ_OK);
    CHECK_WELL(source);
    CHECK_EQ(next_seq(source), 2);
    CHECK_EQ(next_seq(source), 3);
}

TEST("a message that its mover gives up is the next mover's")
{
    struct shmq_queue *source = new_source();
    struct shmq_view taken;

    put_text(source, "visible");
    CHECK_EQ(shmq_take(source, 0, 1, &taken), SHMQ_OK);
    CHECK_EQ(shmq_give_up(source, taken.receipt), SHMQ_OK);
    CHECK_EQ(shmq_give_up(source, taken.receipt), SHMQ_STALE);
    CHECK_WELL(source);
    CHECK_EQ(next_seq(source), 0);
    taken = take_dead(source);
    CHECK_EQ(taken.reason, SHMQ_ALIVE);
    CHECK_EQ(shmq_untake(source, taken.receipt), SHMQ_OK);
    CHECK_EQ(next_seq(source), 1);
}

TEST("only a visible message can be taken out of the order, and only as what it is")
{
    struct shmq_queue *q = new_source();
    struct shmq_view view;

    put_text(q, "a");
    CHECK_EQ(shmq_take(q, 0, 2, &view), SHMQ_STALE);
    take_next(q);
    CHECK_EQ(shmq_take(q, 0, 1, &view), SHMQ_STALE);
    PUT(q, .delay = SECOND);
    CHECK_EQ(shmq_take(q, 1, 2, &view), SHMQ_STALE);
    CHECK_WELL(q);
}

TEST("a message with group and ttl that is taken leaves its group to the next")
{
    struct shmq_queue *q = new_source();
    struct shmq_view view;

    for (int i = 0; i < 3; i++)
        PUT(q, .group = 4, .ttl = 3 * SECOND);
    CHECK_EQ(shmq_take(q, 0, 1, &view), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(shmq_take(q, 2, 3, &view), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 2);
    now += 2 * SECOND;
    CHECK_EQ(shmq_untake(q, view.receipt), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(next_seq(q), 3);
}

TEST("a visible message keeps its end when any process puts it back")
{
    struct shmq_queue *q = new_source();
    struct shmq_view view;

    PUT(q, .ttl = SECOND);
    PUT(q, .ttl = 2 * SECOND);
    CHECK_EQ(shmq_take(q, 0, 1, &view), SHMQ_OK);
    CHECK_EQ(shmq_untake(q, view.receipt), SHMQ_OK);
    CHECK_WELL(q);
    CHECK_EQ(shmq_take(q, 1, 2, &view), SHMQ_OK);
    CHECK_EQ(shmq_give_up(q, view.receipt), SHMQ_OK);
    CHECK_WELL(q);
    view = take_dead(q);
    CHECK_EQ(shmq_untake(q, view.receipt), SHMQ_OK);
    CHECK_WELL(q);
    now += SECOND;
    shmq_tick(q, now);
    CHECK_EQ(q->h->visible, 1);
    now += SECOND;
    shmq_tick(q, now);
    CHECK_EQ(q->h->visible, 0);
    CHECK_EQ(q->h->dead, 2);
    CHECK_WELL(q);
}

TEST("a staged message that is committed takes its place behind what came before")
{
    struct shmq_queue *source = new_source(), *target = new_target();
    struct shmq_view taken;
    uint64_t staged;

    put_text(source, "moved");
    reject_next(source);
    taken = take_dead(source);
    staged = stage(target, &taken);
    CHECK_EQ(put_text(target, "put"), 1);
    CHECK_EQ(shmq_commit_staged(target, staged, now), SHMQ_OK);
    CHECK_EQ(shmq_commit_staged(target, staged, now), SHMQ_STALE);
    CHECK_EQ(next_seq(target), 1);
    CHECK_EQ(next_seq(target), 2);
}

TEST("a staged message that is abandoned leaves nothing behind, not even its group")
{
    struct shmq_queue *target = new_target();
    struct shmq_put put = {.body_bytes = 4, .group = 6};
    struct shmq_view view;
    uint64_t seq;

    CHECK_EQ(shmq_reserve(target, 4, 0, now, NULL, &view, &seq), SHMQ_OK);
    CHECK_EQ(shmq_stage(target, view.receipt, &put, now), SHMQ_OK);
    CHECK_EQ(target->h->groups, 1);
    CHECK_EQ(shmq_abandon(target, view.receipt), SHMQ_OK);
    CHECK_EQ(target->h->groups, 0);
    CHECK_EQ(target->h->live, 0);
    CHECK_WELL(target);
}

TEST("a staged message does not hold back its group")
{
    struct shmq_queue *target = new_target();
    struct shmq_put put = {.body_bytes = 4, .group = 6};
    struct shmq_view view;
    uint64_t seq;

    CHECK_EQ(shmq_reserve(target, 4, 0, now, NULL, &view, &seq), SHMQ_OK);
    CHECK_EQ(shmq_stage(target, view.receipt, &put, now), SHMQ_OK);
    PUT(target, .group = 6);
    CHECK_EQ(next_seq(target), 1);
    CHECK_EQ(shmq_commit_staged(target, view.receipt, now), SHMQ_OK);
    CHECK_WELL(target);
    CHECK_EQ(next_seq(target), 0);
}

/* ---- deaths ---- */

TEST("a mover that dies before the commit leaves a void copy, which the next one removes")
{
    struct shmq_queue *source = new_source(), *target = new_target();
    struct shmq_queue *dead = another_handle(source), *dead_there = another_handle(target);
    struct shmq_view taken;
    uint64_t staged, orphan;

    put_text(source, "body");
    reject_next(source);
    taken = take_dead(dead);
    stage(dead_there, &taken);
    die(dead, source);
    die(dead_there, target);
    CHECK(has_orphan(target, &orphan));
    CHECK(shmq_still_moves(source, taken.seq, SHMQ_NO_ROW));
    taken = take_dead(source);
    staged = stage(target, &taken);
    CHECK(!has_orphan(target, &orphan));
    CHECK_EQ(target->h->staged, 1);
    CHECK_EQ(shmq_moved(source, taken.receipt), SHMQ_OK);
    CHECK_EQ(shmq_commit_staged(target, staged, now), SHMQ_OK);
    CHECK_EQ(drain(target), 1);
    CHECK_EQ(source->h->live + target->h->live, 0);
    CHECK_WELL(source);
    CHECK_WELL(target);
}

TEST("a mover that dies after the commit leaves the message, which anyone commits")
{
    struct shmq_queue *source = new_source(), *target = new_target();
    struct shmq_queue *dead_there = another_handle(target);
    struct shmq_view taken;
    uint64_t orphan;

    put_text(source, "body");
    reject_next(source);
    taken = take_dead(source);
    stage(dead_there, &taken);
    CHECK_EQ(shmq_moved(source, taken.receipt), SHMQ_OK);
    die(dead_there, target);
    CHECK(has_orphan(target, &orphan));
    CHECK(!shmq_still_moves(source, taken.seq, SHMQ_NO_ROW));
    CHECK_EQ(shmq_commit_staged(target, orphan, now), SHMQ_OK);
    CHECK(!has_orphan(target, &orphan));
    CHECK_EQ(drain(target), 1);
    CHECK_WELL(target);
}

TEST("a mover that was taken for dead cannot commit")
{
    struct shmq_queue *source = new_source(), *slow = another_handle(source);
    struct shmq_view taken;

    put_text(source, "body");
    reject_next(source);
    taken = take_dead(slow);
    die(slow, source);
    CHECK_EQ(shmq_moved(slow, taken.receipt), SHMQ_STALE);
    take_dead(source);
    CHECK_EQ(shmq_moved(slow, taken.receipt), SHMQ_STALE);
    CHECK(shmq_still_moves(source, taken.seq, SHMQ_NO_ROW));
}

TEST("a visible message whose mover died is not served again before a copy is looked for")
{
    struct shmq_queue *source = new_source(), *target = new_target();
    struct shmq_queue *dead = another_handle(source), *dead_there = another_handle(target);
    struct shmq_view taken;
    uint64_t orphan;

    put_text(source, "body");
    CHECK_EQ(shmq_take(dead, 0, 1, &taken), SHMQ_OK);
    stage(dead_there, &taken);
    die(dead, source);
    die(dead_there, target);
    CHECK_WELL(source);
    CHECK_EQ(next_seq(source), 0);
    CHECK(shmq_still_moves(source, 1, SHMQ_NO_ROW)); /* so that nobody commits the copy */
    taken = take_dead(source);
    CHECK_EQ(taken.reason, SHMQ_ALIVE);
    shmq_void_copies(target, SOURCE, 1, 0);
    CHECK(!has_orphan(target, &orphan));
    CHECK_EQ(shmq_untake(source, taken.receipt), SHMQ_OK);
    CHECK_EQ(next_seq(source), 1);
    CHECK_WELL(source);
    CHECK_WELL(target);
}

TEST("copies of other messages are left alone")
{
    struct shmq_queue *target = new_target();
    struct shmq_view taken = {.seq = 1, .body = (const unsigned char *)"", .body_bytes = 0};
    uint64_t one, two;

    one = stage(target, &taken);
    taken.seq = 2;
    two = stage(target, &taken);
    shmq_void_copies(target, SOURCE, 3, 0);
    shmq_void_copies(target, TARGET, 1, 0);
    CHECK_EQ(target->h->staged, 2);
    shmq_void_copies(target, SOURCE, 1, 0);
    CHECK_EQ(shmq_commit_staged(target, one, now), SHMQ_STALE);
    CHECK_EQ(shmq_commit_staged(target, two, now), SHMQ_OK);
}

TEST("orphans are found one after the other")
{
    struct shmq_queue *target = new_target(), *dead = another_handle(target);
    struct shmq_origin origin;
    uint64_t found = 0;

    for (uint64_t seq = 1; seq <= 5; seq++) {
        struct shmq_view taken = {.seq = seq, .body = (const unsigned char *)""};

        stage(seq % 2 ? dead : target, &taken);
    }
    die(dead, target);
    for (uint32_t from = 0; shmq_find_orphan(target, from, &origin) == SHMQ_OK;
         from = (uint32_t)(origin.receipt & SHMQ_RECEIPT_SLOT) + 1)
        found |= 1ull << origin.seq;
    CHECK_EQ(found, 1 << 1 | 1 << 3 | 1 << 5);
}

/* ---- rows of a chunk ---- */

static uint64_t stage_row(struct shmq_queue *q, uint64_t origin_seq, uint32_t row,
                          const uint64_t *dedupe, int64_t delay)
{
    uint64_t receipt = 0;

    CHECK_EQ(shmq_stage_row(q,
                            &(struct shmq_put){.body = "row",
                                               .body_bytes = 3,
                                               .row = row + 1,
                                               .origin_queue = SOURCE,
                                               .origin_seq = origin_seq,
                                               .dedupe = dedupe,
                                               .delay = delay},
                            0, now, &receipt),
             SHMQ_OK);
    return receipt;
}

TEST("a chunk's word says which of its rows have moved")
{
    struct shmq_queue *source = NEW_QUEUE(.capacity = 8);
    struct shmq_view chunk;

    put_text(source, "chunk");
    CHECK_EQ(shmq_take(source, 0, 1, &chunk), SHMQ_OK);
    CHECK(shmq_still_moves(source, 1, 0));
    CHECK_EQ(shmq_moved_rows(source, chunk.receipt, 2), SHMQ_OK);
    CHECK(!shmq_still_moves(source, 1, 1));
    CHECK(shmq_still_moves(source, 1, 2));
    CHECK_EQ(shmq_moved_rows(source, chunk.receipt, 1), SHMQ_STALE);
    CHECK_EQ(shmq_untake(source, chunk.receipt), SHMQ_OK);
    CHECK_EQ(shmq_moved_rows(source, chunk.receipt, 3), SHMQ_STALE);
    CHECK_EQ(shmq_take(source, 0, 1, &chunk), SHMQ_OK);
    CHECK_EQ(chunk.deliveries, 2);
    CHECK_EQ(shmq_moved(source, chunk.receipt), SHMQ_OK);
    CHECK(!shmq_still_moves(source, 1, 2));
    CHECK_WELL(source);
}

TEST("of the rows that a dead mover left those are void that had not moved")
{
    struct shmq_queue *target = NEW_QUEUE(.capacity = 8);
    uint64_t moved = stage_row(target, 1, 1, NULL, 0), left = stage_row(target, 1, 2, NULL, 0);
    uint64_t other = stage_row(target, 2, 2, NULL, 0);
    struct shmq_origin origin;

    shmq_disown(target, left);
    CHECK_EQ(shmq_find_orphan(target, 0, &origin), SHMQ_OK);
    CHECK_EQ(origin.receipt, left);
    CHECK_EQ(origin.row, 2);
    shmq_void_copies(target, SOURCE, 1, 2);
    CHECK_EQ(shmq_commit_staged(target, left, now), SHMQ_STALE);
    CHECK_EQ(shmq_commit_staged(target, moved, now), SHMQ_OK);
    CHECK_EQ(shmq_commit_staged(target, other, now), SHMQ_OK);
    CHECK_WELL(target);
    CHECK_EQ(drain(target), 2);
}

TEST("a row that its own handle has staged and not committed has no owner once that is closed")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8);
    uint64_t committed = stage_row(q, 1, 0, NULL, 0), left = stage_row(q, 1, 1, NULL, 0), found;

    CHECK_EQ(shmq_commit_staged(q, committed, now), SHMQ_OK);
    CHECK(!has_orphan(q, &found));
    die(q, q);
    CHECK(has_orphan(q, &found));
    CHECK_EQ(found, left);
    CHECK_WELL(q);
}

TEST("what its owner disowns without the lock is taken over with the next look at the time")
{
    struct shmq_queue *q = new_source(), *other = another_handle(q);
    struct shmq_view filling, moving, view;
    uint64_t copy = stage_row(q, 1, 1, NULL, 0), found, seq;

    CHECK_EQ(shmq_reserve(q, 4, 0, now, NULL, &filling, &seq), SHMQ_OK);
    put_text(q, "moving");
    CHECK_EQ(shmq_take(q, 2, 1, &moving), SHMQ_OK);
    shmq_disown(other, copy);
    shmq_disown(other, filling.receipt);
    shmq_disown(other, moving.receipt);
    CHECK(!has_orphan(q, &found));
    CHECK_EQ(q->h->disowned, 0);

    shmq_disown(q, copy);
    shmq_disown(q, filling.receipt);
    shmq_disown(q, moving.receipt);
    CHECK(has_orphan(q, &found));
    CHECK_EQ(found, copy);
    CHECK_WELL(q);
    shmq_tick(other, now);
    CHECK_EQ(q->h->disowned, 0);
    CHECK_EQ(shmq_fill(q, filling.receipt, &(struct shmq_put){.body_bytes = 4}, now, &seq),
             SHMQ_STALE);
    CHECK_EQ(shmq_moved(q, moving.receipt), SHMQ_STALE);
    CHECK_EQ(q->h->live, 2);
    CHECK_WELL(q);
    view = take_dead(other);
    CHECK(body_is(&view, "moving"));
}

TEST("what a process had disowned when it died is taken over with what it held")
{
    struct shmq_queue *q = new_source(), *other = another_handle(q);
    struct shmq_view moving;

    put_text(q, "moving");
    CHECK_EQ(shmq_take(q, 0, 1, &moving), SHMQ_OK);
    shmq_disown(q, moving.receipt);
    atomic_store(&q->h->disowned, 0); /* it died before it said so */
    shmq_tick(other, now);
    CHECK_EQ(q->h->dying.head, SHMQ_NIL);
    die(q, other);
    CHECK_EQ(q->h->dying.head, 0);
    CHECK_WELL(q);
}

TEST("a row's delay and its dedupe id count from its commit")
{
    struct shmq_queue *target = NEW_QUEUE(.capacity = 8, .dedupe_window = 1000000000);
    const uint64_t id[2] = {7, 8};
    uint64_t first = stage_row(target, 1, 0, id, 500), second = stage_row(target, 1, 1, id, 0);

    now += 1000;
    CHECK_EQ(shmq_commit_staged(target, first, now), SHMQ_OK);
    CHECK_EQ(target->h->delayed, 1);
    CHECK_EQ(shmq_commit_staged(target, second, now), SHMQ_DUPLICATE);
    CHECK_EQ(target->h->staged, 0);
    CHECK_EQ(target->h->live, 1);
    CHECK_WELL(target);
    now += 501;
    CHECK_EQ(drain(target), 1);
    CHECK_WELL(target);
}

TEST("dead letters and dropped messages are counted by reason, too")
{
    struct shmq_queue *q = NEW_QUEUE(.dead_letters = 1, .policies[0].max_deliveries = 1,
                                     .policies[0].drop_expired = 1);
    struct shmq_header *h = q->h;
    struct shmq_view view;

    put_bytes(q, 1);
    put_bytes(q, 1);
    PUT(q, .ttl = SECOND);
    reject_next(q);
    view = take_next(q);
    CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
    CHECK_EQ(h->dead_lettered_by[SHMQ_REJECTED] + h->dead_lettered_by[SHMQ_EXHAUSTED], 0);
    for (int i = 0; i < 2; i++) {
        view = take_dead(q);
        CHECK_EQ(shmq_moved(q, view.receipt), SHMQ_OK);
    }
    now += 2 * SECOND;
    shmq_tick(q, now);
    CHECK_EQ(h->dead_lettered, 2);
    CHECK_EQ(h->dead_lettered_by[SHMQ_REJECTED], 1);
    CHECK_EQ(h->dead_lettered_by[SHMQ_EXHAUSTED], 1);
    CHECK_EQ(h->dropped, 1);
    CHECK_EQ(h->dropped_by[SHMQ_EXPIRED_TTL], 1);
    CHECK_WELL(q);
}
