#include "actor.h"

#include <stdlib.h>

#include "actions.h"
#include "ledger.h"
#include "queue/lock.h"

struct actor *actor_new(struct shmq_queue *q, struct chance chance, uint64_t most_bytes,
                        uint64_t groups)
{
    struct actor *a = calloc(1, sizeof *a);

    CHECK(a);
    a->handles[0] = a->q = q;
    for (int i = 1; i < ACTOR_HANDLES; i++)
        a->handles[i] = another_handle(q);
    a->chance = chance;
    a->strict = true;
    a->side = ACTOR_WHOLE;
    a->most_bytes = most_bytes;
    a->groups = groups;
    a->processes = 1000;
    return a;
}

/* Each as often as it stands here. */
static action *const actions[] = {
    do_put,         do_put,           do_put,       do_put,       do_quick_put, do_quick_put,
    do_quick_put,   do_quick_put,     do_reserve,   do_reserve,   do_fill,      do_fill,
    do_stage,       do_commit_staged, do_abandon,   do_lease,     do_lease,     do_lease,
    do_lease,       do_hand,          do_settle,    do_settle,    do_settle,    do_settle,
    do_mark_acked,  do_mark_acked,    do_finish,    do_pin,       do_unpin,     do_die,
    do_close,       do_recover,       do_take,      do_take,      do_move,      do_move,
    do_void_copies, do_purge,         do_pass_time, do_pass_time, do_sleep,     do_starve,
    do_run,         do_disown,
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

static bool lock_side(struct actor *a, enum actor_side side)
{
    uint32_t post[2];
    int status;

    if (a->side == ACTOR_PUTS)
        (void)shmq_unlock_puts(a->q);
    else if (a->side != ACTOR_NEITHER)
        shmq_unlock(a->q, post);
    a->q = a->handles[below(a, ACTOR_HANDLES)];
    if (side == ACTOR_PUTS)
        status = shmq_lock_puts(a->q);
    else
        status = side == ACTOR_GETS ? shmq_lock_gets(a->q) : shmq_lock(a->q);
    a->side = status == SHMQ_OK ? side : ACTOR_NEITHER;
    MUST_BE(status, SHMQ_OK);
    return status == SHMQ_OK;
}

bool actor_lock(struct actor *a) { return lock_side(a, ACTOR_WHOLE); }

/* What an action takes, at the least; sometimes it has both. */
static enum actor_side side_for(struct actor *a, action *what)
{
    static action *const of_gets[] = {do_lease,  do_run,        do_hand,
                                      do_settle, do_mark_acked, do_finish};

    if (one_in(a, 4))
        return ACTOR_WHOLE;
    for (size_t i = 0; i < sizeof of_gets / sizeof *of_gets; i++)
        if (what == of_gets[i])
            return ACTOR_GETS;
    return what == do_quick_put ? ACTOR_PUTS : ACTOR_WHOLE;
}

/* The inbox is empty only under both locks, and only then is all else to be verified. */
void actor_step(struct actor *a)
{
    action *what = actions[below(a, sizeof actions / sizeof *actions)];

    if (!lock_side(a, side_for(a, what)))
        return;
    what(a);
    if (!a->strict)
        return;
    CHECK(!a->q->damaged);
    if (!shmq_inbox_count(a->q->h))
        CHECK_WELL(a->q);
    balance(a);
}
