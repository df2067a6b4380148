/* Who is attached, and what becomes of what a dead one held. */
#include "queue/segment.h"
#include "fixture.h"
#include "queue/wait.h"

#include <string.h>

static struct shmq_attachment *entry_of(struct shmq_queue *q)
{
    return &q->attachments[q->attachment];
}

/* The process of this handle died: someone else notices. */
static void die(struct shmq_queue *dead, struct shmq_queue *witness)
{
    uint32_t at = dead->attachment;

    shmq_reclaim(witness, at, entry_of(dead)->process, now);
}

TEST("each handle has an entry of its own, with who it is")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = bare_handle(q);

    CHECK_EQ(shmq_attach(other, 77, 4711, "a name that is longer than an entry has room for"),
             SHMQ_OK);
    CHECK(q->attachment != other->attachment);
    CHECK_EQ(entry_of(other)->process, 77);
    CHECK_EQ(entry_of(other)->pid, 4711);
    CHECK(!strcmp(entry_of(other)->name, "a name that is longer than a"));
    CHECK(entry_of(other)->since > 0);
}

TEST("an entry that was set free is the next handle's")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = another_handle(q);
    uint32_t at = other->attachment;

    die(other, q);
    CHECK_EQ(q->attachments[at].process, 0);
    CHECK_EQ(another_handle(q)->attachment, at);
    CHECK_EQ(q->h->attachments_made, 2);
}

/* ---- queues that end for lack of consumers ---- */

TEST("a queue without such an option never ends, whatever its consumers do")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = another_handle(q);

    shmq_consume(other);
    die(other, q);
    CHECK(!shmq_is_unused(q, INT64_MAX));
}

TEST("an auto-delete queue ends with its last consumer, and not before it has had one")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .auto_delete = 1);
    struct shmq_queue *one = another_handle(q), *two = another_handle(q);

    CHECK(!shmq_is_unused(q, INT64_MAX));
    shmq_consume(one);
    shmq_consume(two);
    die(one, q);
    CHECK(!shmq_is_unused(q, INT64_MAX));
    shmq_retire(two, now);
    CHECK(shmq_is_unused(q, now));
    CHECK_EQ(another_handle(q)->attachment, one->attachment); /* one that only puts */
    CHECK(shmq_is_unused(q, now));
}

TEST("a queue that expires ends once it has been without a consumer for its time")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .policies[0].expires = 5 * SECOND);
    struct shmq_queue *other = another_handle(q);

    shmq_renew(q, now);
    CHECK(!shmq_is_unused(q, now + 5 * SECOND - 1));
    CHECK(shmq_is_unused(q, now + 5 * SECOND));
    shmq_consume(other);
    CHECK(!shmq_is_unused(q, INT64_MAX));
    now += 9 * SECOND;
    die(other, q);
    CHECK(!shmq_is_unused(q, now + 5 * SECOND - 1));
    CHECK(shmq_is_unused(q, now + 5 * SECOND));
}

TEST("as many handles attach as there are entries, and the next is refused")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = bare_handle(q);

    for (uint32_t at = 1; at < SHMQ_MAX_ATTACHMENTS; at++) {
        CHECK_EQ(shmq_attach(other, at, 1, ""), SHMQ_OK);
        CHECK_EQ(other->attachment, at);
    }
    CHECK_EQ(shmq_attach(other, 1, 1, ""), SHMQ_CROWDED);
    shmq_reclaim(q, 17, 17, now);
    CHECK_EQ(shmq_attach(other, 1, 1, ""), SHMQ_OK);
    CHECK_EQ(other->attachment, 17);
    put_text(q, "a");
    CHECK_EQ(drain(other), 1);
}

TEST("without memory for its entry a handle is refused")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *other = bare_handle(q);
    int status = SHMQ_OK;

    starve(other);
    for (int i = 0; i < 100 && status == SHMQ_OK; i++)
        status = shmq_attach(other, 5, 1, "");
    CHECK_EQ(status, SHMQ_NO_SPACE);
    feed(other);
    CHECK_EQ(shmq_attach(other, 5, 1, ""), SHMQ_OK);
}

TEST("a dead holder's leases come back at once, and count only if they were handed out")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *dead = another_handle(q);
    struct shmq_view handed, ahead, view;

    put_text(q, "handed");
    put_text(q, "ahead");
    CHECK_EQ(shmq_lease(dead, now, true, &handed), SHMQ_OK);
    CHECK_EQ(shmq_lease(dead, now, false, &ahead), SHMQ_OK);
    CHECK_EQ(entry_of(dead)->leases, 2);
    die(dead, q);
    CHECK_WELL(q);
    view = take_next(q);
    CHECK(view.seq == handed.seq && view.deliveries == 2);
    view = take_next(q);
    CHECK(view.seq == ahead.seq && view.deliveries == 1);
    CHECK_EQ(shmq_ack(q, handed.receipt, now), SHMQ_STALE);
    CHECK_EQ(entry_of(q)->leases, 2);
    CHECK_EQ(q->h->expired, 0);
}

TEST("what a dead holder had acknowledged does not come back")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *dead = another_handle(q);
    struct shmq_view view;

    put_text(q, "acknowledged");
    view = take_next(dead);
    CHECK_EQ(shmq_mark_acked(dead, view.receipt, now), SHMQ_OK);
    die(dead, q);
    CHECK_EQ(q->h->live, 0);
    CHECK_EQ(q->h->acked, 1);
    CHECK_WELL(q);
}

TEST("the last delivery allowed, held by a process that died, goes to the dead letters")
{
    struct shmq_queue *q = NEW_QUEUE(.policies[0].max_deliveries = 1, .dead_letters = 1);
    struct shmq_queue *dead = another_handle(q);

    put_text(q, "poison");
    take_next(dead);
    die(dead, q);
    CHECK_EQ(state_at(q, 0), SHMQ_DEAD);
    CHECK_EQ(q->slots[0].reason, SHMQ_EXHAUSTED);
    CHECK_WELL(q);
}

TEST("what a dead process was writing is dropped, and its views pin nothing more")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8), *dead = another_handle(q);
    struct shmq_view view;
    uint64_t seq;

    put_text(q, "viewed and acked");
    put_text(q, "viewed");
    CHECK_EQ(shmq_reserve(dead, 100, 0, now, NULL, &view, &seq), SHMQ_OK);
    CHECK_EQ(shmq_pin(dead, view.receipt, now, &view), SHMQ_OK);
    view = take_next(dead);
    CHECK_EQ(shmq_pin(dead, view.receipt, now, &view), SHMQ_OK);
    CHECK_EQ(shmq_ack(dead, view.receipt, now), SHMQ_OK);
    view = take_next(dead);
    CHECK_EQ(shmq_pin(dead, view.receipt, now, &view), SHMQ_OK);
    CHECK_EQ(q->h->live, 3);
    die(dead, q);
    CHECK_WELL(q);
    CHECK_EQ(q->h->live, 1);
    CHECK_EQ(q->slots[view.at].pins, 0);
    CHECK_EQ(drain(q), 1);
}

TEST("a staged copy of a dead mover belongs to nobody, and what it moved waits again")
{
    struct shmq_queue *q = NEW_QUEUE(.dead_letters = 1), *dead = another_handle(q);
    struct shmq_origin origin;
    uint64_t seq;
    struct shmq_view view;

    put_text(q, "rejected");
    view = take_next(q);
    CHECK_EQ(shmq_reject(q, view.receipt, now), SHMQ_OK);
    CHECK_EQ(shmq_take_dead(dead, &view), SHMQ_OK);
    CHECK_EQ(shmq_reserve(dead, 4, 0, now, NULL, &view, &seq), SHMQ_OK);
    CHECK_EQ(shmq_stage(dead, view.receipt,
                        &(struct shmq_put){.body_bytes = 4, .origin_queue = 9, .origin_seq = 1},
                        now),
             SHMQ_OK);
    CHECK_EQ(shmq_find_orphan(q, 0, &origin), SHMQ_EMPTY);
    die(dead, q);
    CHECK_WELL(q);
    CHECK_EQ(state_at(q, 0), SHMQ_DEAD);
    CHECK_EQ(shmq_find_orphan(q, 0, &origin), SHMQ_OK);
    CHECK_EQ(origin.receipt, view.receipt);
    CHECK(origin.queue == 9 && origin.seq == 1 && origin.row == SHMQ_NO_ROW);
}

TEST("only what the dead one held is taken, and only if the entry is still its own")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *alive = another_handle(q);
    struct shmq_view view;

    put_text(q, "a");
    view = take_next(alive);
    shmq_reclaim(q, q->attachment, PROCESS, now);
    shmq_reclaim(q, alive->attachment, 12345, now);
    shmq_reclaim(q, SHMQ_MAX_ATTACHMENTS - 1, 0, now);
    shmq_reclaim(q, q->h->attachments_made, 0, now);
    CHECK(entry_of(alive)->process);
    CHECK_EQ(shmq_ack(alive, view.receipt, now), SHMQ_OK);
}

/* Gives slot 0 to the handle in one of the ways there are; false if that was all of them. */
static bool own_in_way(struct shmq_queue *q, int way)
{
    struct shmq_put put = {.body = "row", .body_bytes = 3};
    struct shmq_view view = {.seq = 1};
    uint64_t seq;

    switch (way) {
    case 0: (void)take_next(q); return true;
    case 1: CHECK_EQ(shmq_lease_at(q, 0, 1, now, SECOND, &view), SHMQ_OK); return true;
    case 2: CHECK_EQ(shmq_take(q, 0, 1, &view), SHMQ_OK); return true;
    case 3: CHECK_EQ(shmq_pin_at(q, 0, 1, &view), SHMQ_OK); return true;
    case 4: CHECK_EQ(shmq_reserve(q, 4, 0, now, NULL, &view, &seq), SHMQ_OK); return true;
    case 5: CHECK_EQ(shmq_stage_row(q, &put, 0, now, &view.receipt), SHMQ_OK); return true;
    default: return false;
    }
}

static bool is_held(const struct shmq_queue *q, uint32_t at)
{
    uint32_t owner = at + 1;
    bool held = false;

    for (uint32_t i = 0; i < q->h->slots_made; i++) {
        enum shmq_state state = shmq_state_of(shmq_word(&q->slots[i]));

        held |= q->slots[i].pins >> 16 == owner;
        held |= q->slots[i].owner == owner && state != SHMQ_FREE && state != SHMQ_READY &&
                state != SHMQ_DEAD;
    }
    return held;
}

TEST("a handle that closes holds no slot any more, in whatever way it came to one")
{
    for (int way = 0;; way++) {
        struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .dead_letters = 1);
        struct shmq_queue *other = another_handle(q);
        uint32_t at = other->attachment;

        put_text(q, "a");
        if (!own_in_way(other, way))
            break;
        CHECK(is_held(q, at));
        shmq_reclaim(other, at, entry_of(other)->process, now);
        CHECK(!is_held(q, at));
        CHECK_WELL(q);
    }
}

TEST("a dead sleeper is not counted any more")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4), *dead = another_handle(q);

    shmq_fall_asleep(dead, SHMQ_NOT_EMPTY);
    shmq_fall_asleep(dead, SHMQ_NOT_EMPTY);
    shmq_fall_asleep(q, SHMQ_NOT_EMPTY);
    CHECK_EQ(q->h->asleep[SHMQ_NOT_EMPTY], 3);
    CHECK_EQ(q->h->watchers[SHMQ_NOT_EMPTY], 3);
    die(dead, q);
    CHECK_EQ(q->h->asleep[SHMQ_NOT_EMPTY], 1);
    CHECK_EQ(q->h->watchers[SHMQ_NOT_EMPTY], 1);
}

TEST("a handle that closes under a view gives all back but what the view shows")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 8), *other = another_handle(q);
    struct shmq_view viewed, leased, filling;
    uint64_t seq;

    put_text(q, "viewed");
    put_text(q, "leased");
    viewed = take_next(other);
    CHECK_EQ(shmq_pin(other, viewed.receipt, now, &viewed), SHMQ_OK);
    leased = take_next(other);
    CHECK_EQ(shmq_reserve(other, 4, 0, now, NULL, &filling, &seq), SHMQ_OK);
    shmq_retire(other, now);
    CHECK_WELL(q);
    CHECK_EQ(q->h->visible, 2);
    CHECK_EQ(q->h->live, 2);
    CHECK_EQ(shmq_ack(other, leased.receipt, now), SHMQ_STALE);
    CHECK_EQ(drain(q), 2);
    CHECK(body_is(&viewed, "viewed"));
    CHECK_EQ(state_at(q, viewed.at), SHMQ_ZOMBIE);
    shmq_unpin(other, viewed.at);
    shmq_reclaim(other, other->attachment, entry_of(other)->process, now);
    CHECK_EQ(q->h->live, 0);
    CHECK_WELL(q);
}
