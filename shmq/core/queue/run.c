#include "queue/run.h"

#include <stdlib.h>
#include <string.h>

#include "queue/index.h"
#include "queue/slot.h"
#include "queue/transition.h"

void shmq_run_begin(struct shmq_run *run, const struct shmq_claim *claim, uint32_t epoch)
{
    *run = (struct shmq_run){.claim = claim, .epoch = epoch};
}

void shmq_run_end(struct shmq_run *run)
{
    free(run->groups);
    run->groups = NULL;
    run->count = run->room = 0;
}

/* Sets the entry of the claim's holder. */
static int check_claim(struct shmq_queue *q, const struct shmq_claim *claim, uint32_t *holder)
{
    bool known;

    *holder = shmq_holder_of(q, claim, &known);
    if (*holder != SHMQ_NIL)
        return SHMQ_OK;
    return known ? SHMQ_FENCED : SHMQ_UNCLAIMED;
}

/* ---- the groups that a run holds: a binary heap by key ---- */

static void swap(struct shmq_run *run, uint32_t a, uint32_t b)
{
    struct shmq_run_group entry = run->groups[a];

    run->groups[a] = run->groups[b];
    run->groups[b] = entry;
}

static void sift_up(struct shmq_run *run, uint32_t at)
{
    for (; at && run->groups[at].key < run->groups[(at - 1) / 2].key; at = (at - 1) / 2)
        swap(run, at, (at - 1) / 2);
}

static void sift_down(struct shmq_run *run)
{
    for (uint32_t at = 0, least;; at = least) {
        least = 2 * at + 1;
        if (least + 1 < run->count && run->groups[least + 1].key < run->groups[least].key)
            least++;
        if (least >= run->count || run->groups[at].key <= run->groups[least].key)
            return;
        swap(run, at, least);
    }
}

static void drop_first(struct shmq_run *run)
{
    run->groups[0] = run->groups[--run->count];
    sift_down(run);
}

/* Without memory the run gets no more of that group, which others get after it. */
static void add(struct shmq_run *run, uint64_t key, uint64_t receipt)
{
    uint32_t room = run->room ? run->room * 2 : 64;
    struct shmq_run_group *bigger;

    if (run->count == run->room) {
        bigger = realloc(run->groups, room * sizeof *bigger);
        if (!bigger)
            return;
        run->groups = bigger;
        run->room = room;
    }
    run->groups[run->count] = (struct shmq_run_group){key, receipt};
    sift_up(run, run->count++);
}

/* The next message of the run's groups, or SHMQ_NIL. A group that has none any more, or that is not
 * the run's any more because its lease ended meanwhile, is dropped. */
static uint32_t next_of_groups(struct shmq_queue *q, struct shmq_run *run, int64_t now)
{
    while (run->count && !q->damaged) {
        struct shmq_run_group *first = run->groups;
        struct shmq_slot *held = shmq_leased(q, first->receipt, now), *s;
        uint32_t at = SHMQ_NIL;

        if (held && shmq_where_of(held) == SHMQ_IN_FLIGHT)
            at = shmq_group_behind(q, held);
        if (at == SHMQ_NIL) {
            drop_first(run);
            continue;
        }
        s = shmq_slot_at(q, at);
        if (shmq_has_expired(s, shmq_word(s), now)) {
            shmq_message_due(q, s, now);
            continue;
        }
        if (shmq_key_of(s) <= first->key)
            return at;
        first->key = shmq_key_of(s); /* what was there has gone: it is to be compared again */
        sift_down(run);
    }
    return SHMQ_NIL;
}

/* ---- leasing ---- */

/* Leases a READY message in the name of the run, or by this attachment. */
static void grant(struct shmq_queue *q, const struct shmq_run *run, uint32_t holder,
                  struct shmq_slot *s, int64_t now, int64_t ns, struct shmq_view *view)
{
    if (run->claim)
        shmq_tag(q, s, holder, run->epoch);
    shmq_grant(q, s, run->claim, now, ns, view);
}

/* The same; the message of its group behind it is the run's next one of the group. */
static void lease(struct shmq_queue *q, struct shmq_run *run, uint32_t holder, struct shmq_slot *s,
                  int64_t now, int64_t ns, struct shmq_view *view)
{
    uint32_t behind;

    grant(q, run, holder, s, now, ns, view);
    if (!view->group)
        return;
    behind = shmq_group_behind(q, s);
    if (behind != SHMQ_NIL)
        add(run, shmq_key_of(shmq_slot_at(q, behind)), view->receipt);
}

int shmq_run_lease(struct shmq_queue *q, struct shmq_run *run, int64_t now, int64_t ns,
                   struct shmq_view *view)
{
    uint32_t holder = SHMQ_NIL, at, of_groups;
    int status;

    if (run->claim && (status = check_claim(q, run->claim, &holder)))
        return shmq_outcome(q, status);
    of_groups = next_of_groups(q, run, now); /* first: what ends there may bring another front */
    at = shmq_next_ready(q, now);
    if (of_groups != SHMQ_NIL && (at == SHMQ_NIL || shmq_key_of(shmq_slot_at(q, of_groups)) <
                                                        shmq_key_of(shmq_slot_at(q, at)))) {
        at = of_groups;
        drop_first(run);
    }
    if (at == SHMQ_NIL)
        return shmq_outcome(q, SHMQ_EMPTY);
    lease(q, run, holder, shmq_slot_at(q, at), now, ns, view);
    return shmq_outcome(q, SHMQ_OK);
}

/* Whether the run may have the READY message: it has no group, or one with nothing in flight but
 * messages of this run. */
static bool may_have(struct shmq_queue *q, const struct shmq_run *run, uint32_t holder,
                     struct shmq_slot *s)
{
    const struct shmq_slot *front;

    if (!(shmq_word(s) & SHMQ_F_GROUPED) || shmq_group_bring_forward(q, s))
        return true;
    front = shmq_slot_at(q, shmq_group_at(q, s->group_at)->front);
    return run->claim && shmq_where_of(front) == SHMQ_IN_FLIGHT && front->owner == SHMQ_BY_NAME &&
           shmq_is_tagged_by(q, front, holder) && front->epoch == run->epoch &&
           !shmq_is_fenced(q, front, shmq_word(front));
}

static int lease_at(struct shmq_queue *q, struct shmq_run *run, uint32_t holder,
                    struct shmq_slot *s, int64_t now, int64_t ns, struct shmq_view *view)
{
    if (shmq_has_expired(s, shmq_word(s), now)) {
        shmq_message_due(q, s, now);
        return SHMQ_STALE;
    }
    /* A message that was just put is in no index yet. */
    if (shmq_where_of(s) == SHMQ_NOWHERE || !may_have(q, run, holder, s))
        return SHMQ_STALE;
    grant(q, run, holder, s, now, ns, view);
    return SHMQ_OK;
}

int shmq_run_lease_at(struct shmq_queue *q, struct shmq_run *run, uint32_t at, uint64_t seq,
                      int64_t now, int64_t ns, struct shmq_view *view)
{
    struct shmq_slot *s;
    uint32_t holder = SHMQ_NIL;
    int status;

    shmq_tick_if_due(q, now);
    if (run->claim && (status = check_claim(q, run->claim, &holder)))
        return shmq_outcome(q, status);
    s = shmq_slot_named(q, at);
    if (!s || shmq_state_of(shmq_word(s)) != SHMQ_READY || GET_ATOMIC(s->seq) != seq)
        return shmq_outcome(q, SHMQ_STALE);
    return shmq_outcome(q, lease_at(q, run, holder, s, now, ns, view));
}

int shmq_lease_at(struct shmq_queue *q, uint32_t at, uint64_t seq, int64_t now, int64_t ns,
                  struct shmq_view *view)
{
    struct shmq_run run = {.claim = NULL};

    return shmq_run_lease_at(q, &run, at, seq, now, ns, view);
}

/* ---- messages with a tag ---- */

static int by_key(const void *one, const void *other)
{
    const struct shmq_tagged *a = one, *b = other;

    return (a->key > b->key) - (a->key < b->key);
}

static bool note(struct shmq_tagged **found, uint32_t *count, uint32_t *room,
                 const struct shmq_slot *s, uint32_t at)
{
    struct shmq_tagged *bigger;

    if (*count == *room) {
        *room = *room ? *room * 2 : 1024;
        bigger = realloc(*found, *room * sizeof *bigger);
        if (!bigger)
            return false;
        *found = bigger;
    }
    (*found)[(*count)++] = (struct shmq_tagged){shmq_key_of(s), GET_ATOMIC(s->seq), at,
                                                GET_ATOMIC(s->epoch)};
    return true;
}

static bool may_be_taken(const struct shmq_slot *s)
{
    enum shmq_state state = shmq_state_of(shmq_word(s));

    return state == SHMQ_READY || state == SHMQ_DELAYED ||
           (state == SHMQ_LEASED && GET_ATOMIC(s->owner) == SHMQ_BY_NAME);
}

int shmq_find_tagged(struct shmq_queue *q, const struct shmq_claim *claim,
                     struct shmq_tagged **found, uint32_t *count)
{
    uint32_t holder, room = 0;
    int status = check_claim(q, claim, &holder);

    *found = NULL;
    *count = 0;
    if (status)
        return status;
    for (uint32_t at = 0; at < GET_ATOMIC(q->h->slots_made) && at < q->geo.slots_max; at++) {
        const struct shmq_slot *s = &q->slots[at];

        if (may_be_taken(s) && shmq_is_tagged_by(q, s, holder) &&
            !note(found, count, &room, s, at)) {
            q->refused_bytes = (uint64_t)room * sizeof **found;
            return SHMQ_NO_SPACE;
        }
    }
    if (*count)
        qsort(*found, *count, sizeof **found, by_key);
    return SHMQ_OK;
}

/* The slot, if it still has that message with that tag, and no other holder has leased it. */
static int take_up(struct shmq_queue *q, const struct shmq_claim *claim,
                   const struct shmq_tagged *which, struct shmq_slot **s, uint32_t *holder)
{
    int status = check_claim(q, claim, holder);

    if (status)
        return status;
    *s = shmq_slot_if_made(q, which->at);
    return *s && (*s)->seq == which->seq && may_be_taken(*s) && shmq_is_tagged_by(q, *s, *holder) &&
                   (*s)->epoch == which->epoch
               ? SHMQ_OK
               : SHMQ_STALE;
}

/* A lease of an older claim becomes a new one: it counts as another delivery, and the message dies
 * if it has had as many as it may. It stays in flight. */
static int lease_anew(struct shmq_queue *q, struct shmq_slot *s, int64_t now, int64_t ns,
                      struct shmq_view *view)
{
    uint64_t word = shmq_word(s);
    uint32_t deliveries = shmq_deliveries_with_this(word);
    uint32_t limit = shmq_policies_now(q->h)->max_deliveries;

    if (limit && deliveries >= limit && word & SHMQ_F_HANDED) {
        shmq_unlease(q, s);
        shmq_come_back(q, s, 0, now);
        return SHMQ_STALE;
    }
    shmq_timer_unlease(q, s);
    SET_ATOMIC(s->deadline, now + ns);
    shmq_commit(s,
                shmq_make_word(SHMQ_LEASED, (word & (SHMQ_F_GROUPED | SHMQ_F_TTL)) | SHMQ_F_HANDED,
                               deliveries, shmq_next_serial(q->h)));
    shmq_timer_set(q, s);
    SET(q->h->redelivered, q->h->redelivered + 1);
    shmq_look(q, s, view);
    view->deliveries++;
    return SHMQ_OK;
}

int shmq_lease_tagged(struct shmq_queue *q, const struct shmq_claim *claim,
                      const struct shmq_tagged *which, int64_t now, int64_t ns,
                      struct shmq_view *view)
{
    struct shmq_run run = {.claim = claim, .epoch = which->epoch};
    struct shmq_slot *s;
    uint32_t holder;
    int status;

    shmq_tick_if_due(q, now);
    if ((status = take_up(q, claim, which, &s, &holder)))
        return shmq_outcome(q, status);
    if (shmq_state_of(shmq_word(s)) == SHMQ_LEASED)
        status = lease_anew(q, s, now, ns, view);
    else if (shmq_state_of(shmq_word(s)) == SHMQ_READY)
        status = lease_at(q, &run, holder, s, now, ns, view);
    else
        status = SHMQ_STALE;
    return shmq_outcome(q, status);
}

int shmq_ack_tagged(struct shmq_queue *q, const struct shmq_claim *claim,
                    const struct shmq_tagged *which)
{
    struct shmq_slot *s;
    uint32_t holder;
    int status = take_up(q, claim, which, &s, &holder);

    if (status)
        return shmq_outcome(q, status);
    if (shmq_state_of(shmq_word(s)) == SHMQ_LEASED) {
        shmq_set_free(q, s);
        return shmq_outcome(q, SHMQ_OK);
    }
    shmq_withdraw(q, s);
    shmq_leave_group(q, s);
    shmq_slot_free(q, s);
    SET(q->h->acked, q->h->acked + 1);
    return shmq_outcome(q, SHMQ_OK);
}

int shmq_return_tagged(struct shmq_queue *q, const struct shmq_claim *claim,
                       const struct shmq_tagged *which, int64_t now)
{
    struct shmq_slot *s;
    uint32_t holder;
    int status = take_up(q, claim, which, &s, &holder);

    if (status)
        return shmq_outcome(q, status);
    if (shmq_state_of(shmq_word(s)) == SHMQ_LEASED) {
        shmq_unlease(q, s);
        shmq_commit(s, shmq_word(s) & ~SHMQ_F_HANDED);
        shmq_come_back(q, s, 0, now);
    }
    shmq_untag(s); /* last: a death in between leaves what the next claim finds */
    return shmq_outcome(q, SHMQ_OK);
}
