#include "queue/change_hints.h"
#include "queue/backing.h"
#include "queue/message.h"
#include "queue/recover.h"

/* Frees every visible and delayed message and rebuilds everything derived, which is linear,
 * whatever the messages' groups, priorities and timers. */
int shmq_purge(struct shmq_queue *q, uint64_t *removed)
{
    int status;

    *removed = 0;
    for (uint32_t at = 0; at < q->h->slots_made; at++) {
        struct shmq_slot *s = &q->slots[at];
        uint64_t word = shmq_word(s);

        if (shmq_state_of(word) != SHMQ_READY && shmq_state_of(word) != SHMQ_DELAYED)
            continue;
        shmq_conclude(q, s);
        ++*removed;
    }
    if ((status = shmq_rebuild(q)))
        return status;
    shmq_give_back(q);
    return SHMQ_OK;
}
