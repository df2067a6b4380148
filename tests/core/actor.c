#include "actor.h"

#include <stdlib.h>

#include "deeds.h"
#include "ledger.h"
#include "lock.h"

struct actor *actor_new(struct shmq_queue *q, struct chance chance, uint64_t most_bytes,
                        uint64_t groups)
{
    struct actor *a = calloc(1, sizeof *a);

    CHECK(a);
    a->handles[0] = a->q = q;
    for (int i = 1; i < ACTOR_HANDLES; i++)
        a->handles[i] = another_handle(q);
    a->chance = chance;
    a->strict = a->holds_lock = true;
    a->most_bytes = most_bytes;
    a->groups = groups;
    a->processes = 1000;
    return a;
}

/* Each as often as it stands here. */
static deed *const deeds[] = {
    do_put, do_put, do_put, do_put, do_put, do_put,
    do_reserve, do_reserve, do_fill, do_fill, do_stage, do_publish, do_abandon,
    do_lease, do_lease, do_lease, do_lease, do_hand,
    do_settle, do_settle, do_settle, do_settle, do_mark_acked, do_mark_acked, do_finish,
    do_pin, do_unpin,
    do_die, do_close, do_recover,
    do_take, do_take, do_move, do_move, do_void_copies,
    do_purge, do_pass_time, do_pass_time, do_sleep, do_starve,
};

/* What is in the queue and what has left it is what was put. */
static void balance(struct actor *a)
{
    const struct shmq_header *h = a->q->h;
    uint64_t here = 0;

    for (uint32_t at = 0; at < h->slots_made; at++) {
        enum shmq_state state = shmq_state_of(shmq_word(&a->q->slots[at]));

        if (state < SHMQ_READY || state == SHMQ_ZOMBIE)
            continue;
        here++;
        CHECK_EQ(a->puts[a->q->slots[at].seq].settled, state == SHMQ_ACKED);
    }
    CHECK_EQ(h->last_seq, here + h->acked + h->dropped + a->purged + a->moved);
}

bool actor_lock(struct actor *a)
{
    uint32_t post[2];
    int status;

    if (a->holds_lock)
        shmq_unlock(a->q, post);
    a->q = a->handles[below(a, ACTOR_HANDLES)];
    status = shmq_lock(a->q);
    a->holds_lock = status == SHMQ_OK;
    MUST_BE(status, SHMQ_OK);
    return a->holds_lock;
}

void actor_step(struct actor *a)
{
    if (!actor_lock(a))
        return;
    deeds[below(a, sizeof deeds / sizeof *deeds)](a);
    if (a->strict) {
        CHECK(!a->q->damaged);
        CHECK_WELL(a->q);
        balance(a);
    }
}
