/* Choosing: leasing the first message, in the queue's order, that a filter lets through.
 *
 * What is not meant stays where it is. Only what could be had at once is looked at: of a group
 * the front, so a front that is not meant holds its group. The lock is held for a bounded number
 * of steps; in between others have their turns, and the search goes on where it was. It sees
 * every message that stands in the order from its beginning to its end; of what comes in
 * meanwhile it may see some, and waiting parties are woken for it (wakeup.h). */
#ifndef SHMQ_QUEUE_SELECT_H
#define SHMQ_QUEUE_SELECT_H

#include "queue/filter.h"
#include "queue/message.h"

/* A search. Private memory. */
struct shmq_choice {
    struct shmq_filter filter;
    int64_t wall;        /* ns since 1970, when it began                                  */
    uint64_t recoveries; /* of the queue, by then: a rebuild puts everything elsewhere    */
    bool more;           /* after SHMQ_EMPTY: it is not over, so call again               */

    /* -- the order's list of each priority: where to go on -- */
    int32_t priority;    /* -1: all have been looked through                              */
    uint32_t at;         /* the slot to look at next, if it still holds; SHMQ_NIL: the head */
    uint64_t seq;        /*   this message there                                          */
    uint64_t seen;       /* of this priority, what came before and was looked at          */

    /* -- the order's heap: the best in it that is meant -- */
    bool heap_seen;      /* all of it has been looked through                             */
    uint32_t heap_at;    /* the slot to go on at, where the heap is large                 */
    uint32_t best;       /* SHMQ_NIL: none so far                                         */
    uint64_t best_key;

    uint32_t cost;       /* of running the filter once                                    */
    uint32_t looks;      /* that may still be taken while the lock is held                */
    uint64_t looked;     /* all that were taken                                           */
};

/* The filter has been checked. */
void shmq_select_begin(const struct shmq_queue *q, struct shmq_choice *choice,
                       const struct shmq_filter *filter);

/* Leases the next message that is meant: SHMQ_OK; call again for one more. SHMQ_EMPTY: there is
 * none, unless `more`. Holds the lock of the gets. */
int shmq_select(struct shmq_queue *q, struct shmq_choice *choice, int64_t now, bool handed,
                struct shmq_view *view);

/* The lock is free between this call and the next: as many steps as at first. */
void shmq_select_again(struct shmq_choice *choice);

#endif
