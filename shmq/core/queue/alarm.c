#include "queue/wait.h"

#include "queue/index.h"

/* A lease that begins later ends no earlier than the visibility timeout from now, so leases alone
 * do not set off the alarm. */
int64_t shmq_set_alarm(struct shmq_queue *q)
{
    int64_t lease = shmq_policies_now(q->h)->visibility, due = shmq_next_due(q), latest;

    latest = shmq_now() + (lease < SHMQ_SHORT_SLEEP ? SHMQ_SHORT_SLEEP : lease);
    due = due < latest ? due : latest;
    if (due < q->h->alarm)
        SET(q->h->alarm, due);
    return due;
}

int64_t shmq_set_early_alarm(struct shmq_queue *q)
{
    int64_t due = shmq_next_due(q);

    if (due > shmq_now() + SHMQ_LONG_SLEEP || due >= q->h->alarm)
        return INT64_MAX;
    SET(q->h->alarm, due);
    return due;
}

/* While there are free slots, other bodies than the waiter's may have room, so waiters for room look
 * every 50 ms. Those that sleep long fell asleep when there was no slot. One of them is woken for each
 * slot that becomes free; if it cannot use it, it wakes the next one. */
int64_t shmq_look_for_room(struct shmq_queue *q, bool slept_long)
{
    if (!shmq_looks_roomy(q, 1))
        return INT64_MAX;
    if (slept_long)
        q->freed++;
    return shmq_now() + SHMQ_SHORT_SLEEP;
}

void shmq_pass_on(struct shmq_queue *q, enum shmq_event event)
{
    if (event == SHMQ_NOT_FULL)
        q->freed++;
}
