/* Views, deaths, closing, recovery. */
#include "queue/segment.h"
#include "actions.h"
#include "ledger.h"
#include "queue/recover.h"

/* ---- views ---- */

static int pin(struct actor *a, const struct actor_receipt *r, struct shmq_view *view)
{
    uint32_t at = (uint32_t)(r->receipt & SHMQ_RECEIPT_SLOT);

    if (is_good(a, r->receipt, SHMQ_LEASED) && one_in(a, 2))
        return shmq_pin_at(a->q, at, a->q->slots[at].seq, view);
    if (!a->strict && one_in(a, 2))
        return shmq_pin_at(a->q, at % 64, below(a, a->q->h->last_seq + 1), view);
    return shmq_pin(a->q, r->receipt, now, view);
}

void do_pin(struct actor *a)
{
    struct actor_receipt r = pick(a, one_in(a, 4) ? SHMQ_FILLING : SHMQ_LEASED);
    struct shmq_view view;
    int status;

    if (a->view_count == MOST_VIEWS)
        return;
    status = pin(a, &r, &view);
    keep(a, r);
    if (status != SHMQ_OK)
        return;
    if (shmq_state_of(view.word) != SHMQ_FILLING) {
        check_view(a, &view, view.seq);
        r.salt = a->puts[view.seq % MOST_PUTS].salt;
    }
    a->views[a->view_count++] = (struct actor_view){a->q, view, r.salt};
}

static void unpin(struct actor *a, uint32_t at)
{
    struct actor_view v = a->views[at];

    MUST(has_pattern(v.view.body, v.view.body_bytes, v.salt));
    a->views[at] = a->views[--a->view_count];
    shmq_unpin(v.holder, v.view.at);
}

void do_unpin(struct actor *a)
{
    if (a->view_count)
        unpin(a, (uint32_t)below(a, a->view_count));
}

static void forget_views(struct actor *a, const struct shmq_queue *holder, bool dead)
{
    for (uint32_t at = a->view_count; at-- > 0;)
        if (a->views[at].holder == holder && dead)
            a->views[at] = a->views[--a->view_count];
        else if (a->views[at].holder == holder)
            unpin(a, at);
}

/* ---- death and closing ---- */

static void attach_again(struct actor *a, struct shmq_queue *q)
{
    int status = shmq_attach(q, ++a->processes, 1, "again");

    MUST(status == SHMQ_OK || (status == SHMQ_NO_SPACE && q->fd < 0));
    if (status != SHMQ_OK)
        q->attachment = 0; /* the first handle's: any will do */
}

static uint64_t process_of(const struct shmq_queue *q)
{
    return q->attachments[q->attachment].process;
}

void do_die(struct actor *a)
{
    struct shmq_queue *dead = a->handles[1 + below(a, ACTOR_HANDLES - 1)];

    if (dead == a->q || dead->attachment >= SHMQ_MAX_ATTACHMENTS || !dead->attachment)
        return;
    shmq_reclaim(a->q, dead->attachment, process_of(dead), now);
    forget_views(a, dead, true);
    attach_again(a, dead);
}

void do_close(struct actor *a)
{
    struct shmq_queue *q = a->handles[1 + below(a, ACTOR_HANDLES - 1)];

    if (!q->attachment)
        return;
    shmq_retire(q, now);
    forget_views(a, q, false);
    shmq_reclaim(q, q->attachment, process_of(q), now);
    attach_again(a, q);
}

void do_recover(struct actor *a)
{
    int status = shmq_recover(a->q);

    MUST_BE(status, SHMQ_OK);
}
