/* Moving to another queue, and what is left: purge, time, sleep, want of memory. */
#include "actions.h"
#include "ledger.h"
#include "queue/wait.h"
#include "queue/index.h"
#include "queue/transition.h"

void do_take(struct actor *a)
{
    struct actor_receipt r = {.state = SHMQ_MOVING};
    struct shmq_view view;
    uint32_t at = (uint32_t)below(a, a->q->h->options.capacity);
    int status = SHMQ_STALE;

    if (one_in(a, 2))
        status = shmq_take_dead(a->q, &view);
    else if (at < a->q->h->slots_made)
        status = shmq_take(a->q, at, a->q->slots[at].seq, &view);
    if (status != SHMQ_OK)
        return;
    check_view(a, &view, view.seq);
    MUST(shmq_still_moves(a->q, view.seq, SHMQ_NO_ROW));
    r.receipt = view.receipt;
    keep(a, r);
}

void do_move(struct actor *a)
{
    struct actor_receipt r = pick(a, SHMQ_MOVING);
    bool good = is_good(a, r.receipt, SHMQ_MOVING);
    uint64_t how = below(a, 4);
    int status;

    if (how == 0)
        status = shmq_untake(a->q, r.receipt);
    else if (how == 1)
        status = shmq_give_up(a->q, r.receipt);
    else
        status = shmq_moved(a->q, r.receipt);
    MUST_BE(status, good ? SHMQ_OK : SHMQ_STALE);
    a->moved += good && how > 1;
}

void do_disown(struct actor *a)
{
    static const enum shmq_state states[] = {SHMQ_FILLING, SHMQ_STAGED, SHMQ_MOVING};

    shmq_disown(a->q, pick(a, states[below(a, 3)]).receipt);
}

void do_void_copies(struct actor *a)
{
    struct shmq_origin origin;

    shmq_void_copies(a->q, below(a, 2), below(a, 4), 0);
    if (shmq_find_orphan(a->q, (uint32_t)below(a, 8), &origin) == SHMQ_OK)
        MUST(is_good(a, origin.receipt, SHMQ_STAGED) && origin.queue < 2 && origin.seq < 4);
}

/* ---- what is left ---- */

void do_purge(struct actor *a)
{
    uint64_t removed = 0, visible = a->q->h->visible, delayed = a->q->h->delayed;
    int status;

    if (!one_in(a, 4))
        return;
    status = shmq_purge(a->q, &removed);
    MUST_BE(status, SHMQ_OK);
    MUST_BE(removed, visible + delayed);
    a->purged += removed;
}

void do_pass_time(struct actor *a)
{
    now += (int64_t)below(a, one_in(a, 20) ? 60 * SECOND : 2 * SECOND);
    if (one_in(a, 2))
        shmq_tick(a->q, now);
}

void do_sleep(struct actor *a)
{
    enum shmq_event event = (enum shmq_event)below(a, 2);

    if (one_in(a, 2))
        shmq_fall_asleep(a->q, event);
    else
        shmq_wake_up(a->q, event, one_in(a, 2), (int)below(a, 3));
}

void do_starve(struct actor *a)
{
    if (a->q->fd < 0)
        feed(a->q);
    else if (one_in(a, 4))
        starve(a->q);
}
