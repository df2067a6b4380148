#include "queue/segment.h"

#include <string.h>

#include "base/clock.h"
#include "queue/message.h"
#include "queue/slot.h"
#include "queue/transition.h"
#include "queue/wait.h"
#include "queue/wakeup.h"

static uint32_t free_entry(struct shmq_queue *q)
{
    uint32_t at = 0;

    while (at < q->h->attachments_made && q->attachments[at].process)
        at++;
    return at;
}

int shmq_attach(struct shmq_queue *q, uint64_t process, uint32_t pid, const char *name)
{
    uint32_t at = free_entry(q);
    struct shmq_attachment *a;
    int status;

    if (at >= SHMQ_MAX_ATTACHMENTS)
        return SHMQ_CROWDED;
    if ((status = shmq_back_attachments(q, at + 1)))
        return status;
    a = &q->attachments[at];
    memset(a, 0, sizeof *a);
    a->pid = pid;
    a->since = shmq_wall();
    strncpy(a->name, name, sizeof a->name - 1);
    shmq_mark();
    SET(a->process, process);
    if (at == q->h->attachments_made)
        SET(q->h->attachments_made, at + 1);
    q->attachment = at;
    q->owned = false;
    q->staged = 0;
    return SHMQ_OK;
}

static void reclaim_slot(struct shmq_queue *q, struct shmq_slot *s, uint32_t owner, int64_t now)
{
    uint64_t word = shmq_word(s);
    enum shmq_state state = shmq_state_of(word);

    if (state == SHMQ_FREE)
        return;
    if (s->pins >> 16 == owner) {
        SET(s->pins, 0);
        if (state == SHMQ_ZOMBIE)
            shmq_slot_free(q, s);
    }
    if (s->owner == owner || shmq_is_disowned(s))
        shmq_message_orphaned(q, s, now);
}

static void count_out_sleepers(struct shmq_queue *q, struct shmq_attachment *a)
{
    for (int event = 0; event < 2; event++) {
        uint32_t asleep = q->h->asleep[event];

        SET_ATOMIC(q->h->asleep[event], asleep > a->asleep[event] ? asleep - a->asleep[event] : 0);
        SET(a->asleep[event], 0);
        while (a->watchers[event])
            shmq_stop_watching(q, a, event);
    }
}

void shmq_consume(struct shmq_queue *q)
{
    SET(q->attachments[q->attachment].consumes, 1);
    SET(q->h->consumed, 1);
}

void shmq_renew(struct shmq_queue *q, int64_t now) { SET(q->h->unused_since, now); }

static void stop_consuming(struct shmq_queue *q, struct shmq_attachment *a, int64_t now)
{
    if (!a->consumes)
        return;
    shmq_renew(q, now); /* first: if this process dies in between, the entry still counts */
    shmq_mark();
    SET(a->consumes, 0);
}

bool shmq_is_unused(const struct shmq_queue *q, int64_t now)
{
    const struct shmq_header *h = q->h;
    int64_t expires = shmq_policies_now(h)->expires;

    for (uint32_t at = 0; at < h->attachments_made && at < SHMQ_MAX_ATTACHMENTS; at++)
        if (q->attachments[at].process && q->attachments[at].consumes)
            return false;
    return (h->options.auto_delete && h->consumed) || (expires && now - h->unused_since >= expires);
}

void shmq_reclaim(struct shmq_queue *q, uint32_t at, uint64_t process, int64_t now)
{
    struct shmq_attachment *a = &q->attachments[at];

    if (at >= q->h->attachments_made || a->process != process)
        return;
    if (at != q->attachment || q->owned || q->staged) /* of another handle, the slots alone tell */
        for (uint32_t i = 0; i < q->h->slots_made; i++)
            reclaim_slot(q, &q->slots[i], at + 1, now);
    count_out_sleepers(q, a);
    stop_consuming(q, a, now);
    shmq_forget_parties(q, at);
    SET(a->process, 0);
    q->freed++;
}

void shmq_retire(struct shmq_queue *q, int64_t now)
{
    for (uint32_t i = 0; i < q->h->slots_made; i++) {
        struct shmq_slot *s = &q->slots[i];

        if (shmq_state_of(shmq_word(s)) != SHMQ_FREE && s->owner == q->attachment + 1)
            shmq_message_orphaned(q, s, now);
    }
    count_out_sleepers(q, &q->attachments[q->attachment]);
    stop_consuming(q, &q->attachments[q->attachment], now);
    shmq_forget_parties(q, q->attachment);
}
