/* Selection: leasing the first message, in the queue's order, that matches a filter.
 *
 * Messages that do not match stay in place. Only messages that a get could lease at once are looked
 * at: of a group only the front, so a front that does not match holds back its group. The lock is
 * held for a bounded number of steps; in between it is free for others, and then the search
 * continues where it was. It sees every message that is in the order from its beginning to its end;
 * it may see some of those that arrive meanwhile, and waiting parties are woken for them
 * (wakeup.h). */
#ifndef SHMQ_QUEUE_SELECT_H
#define SHMQ_QUEUE_SELECT_H

#include "queue/filter.h"
#include "queue/message.h"

/* A search. Private memory. */
struct shmq_choice {
    struct shmq_filter filter;
    int64_t wall;        /* ns since 1970 at the beginning                                */
    uint64_t recoveries; /* of the queue at that time: a rebuild moves everything         */
    bool more;           /* after SHMQ_EMPTY: the search is not over, call again          */

    /* -- the order's list of each priority: where to continue -- */
    int32_t priority;    /* -1: all were searched                                         */
    uint32_t at;         /* the next slot, if it still holds; SHMQ_NIL: the head            */
    uint64_t seq;        /*   this message there                                          */
    uint64_t seen;       /* the messages of this priority looked at so far                */

    /* -- the order's heap: its best match -- */
    bool heap_seen;      /* all of it was searched                                        */
    uint32_t heap_at;    /* where to continue in a large heap                             */
    uint32_t best;       /* SHMQ_NIL: none so far                                         */
    uint64_t best_key;

    uint32_t cost;       /* of one run of the filter                                      */
    uint32_t looks;      /* looks left while the lock is held                             */
    uint64_t looked;     /* all looks so far                                              */
};

/* Begins a search. The filter must have been checked. */
void shmq_select_begin(const struct shmq_queue *q, struct shmq_choice *choice,
                       const struct shmq_filter *filter);

/* Leases the next match: SHMQ_OK; call again for one more. SHMQ_EMPTY: there is none, unless `more`
 * is set. Holds the get-side lock. */
int shmq_select(struct shmq_queue *q, struct shmq_choice *choice, int64_t now, bool handed,
                struct shmq_view *view);

/* Allows a new portion of steps after the lock was released. */
void shmq_select_again(struct shmq_choice *choice);

#endif
