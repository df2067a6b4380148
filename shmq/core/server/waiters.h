/* Waiters: waiting CONSUMEs, and subscriptions. */
#ifndef SHMQ_SERVER_WAITERS_H
#define SHMQ_SERVER_WAITERS_H

#include "server/server.h"

/* The arguments of a CONSUME or a SUBSCRIBE. */
struct shmq_consume_request {
    uint32_t id;
    uint32_t most;  /* messages, or the credit                                         */
    int64_t until;  /* of a CONSUME: monotonic ns; 0: it does not wait                 */
    bool subscribes;
    bool settled;
    bool tells;     /* reports hand-outs to the application with HANDED                */
    const unsigned char *where;  /* an expression, or NULL                               */
    uint16_t where_bytes;
    struct shmq_filter_request *filtered; /* the compiled expression; the waiter takes it over    */
};

/* Makes a waiter of the session, not in its attached queue's list yet; NULL without memory: then
 * the filter is freed. */
struct shmq_waiter *shmq_waiter_begin(struct shmq_queue_session *queue_session,
                                      const struct shmq_consume_request *request);

/* Ends the waiter; one with leases is freed with its last. shmq_waiter_answer: with that status,
 * unless it is OK. */
void shmq_waiter_end(struct shmq_waiter *w);
void shmq_waiter_answer(struct shmq_waiter *w, uint16_t status);

/* Enters the end of its attached queue's list, or leaves the list. */
void shmq_waiter_enqueue(struct shmq_waiter *w);
void shmq_waiter_dequeue(struct shmq_waiter *w);

static inline bool shmq_waiter_has_credit(const struct shmq_waiter *w)
{
    return !w->subscribes || w->settled || w->used < w->most;
}

/* Whether its filter has not reached the end of the queue yet. */
static inline bool shmq_waiter_searches(const struct shmq_waiter *w)
{
    return w->filtered && w->filtered->searches;
}

/* The session's subscription with that id, or NULL. */
struct shmq_waiter *shmq_subscription(struct shmq_session *session, uint32_t id);

/* Ends the subscription; its leases continue. */
void shmq_unsubscribe(struct shmq_waiter *subscription);

/* The first `count` messages of the subscription were, or will at once be, handed out. */
void shmq_waiter_handed(struct shmq_waiter *subscription, uint32_t count);

/* One held lease of the subscription is over; an ended subscription is freed with its last. */
void shmq_waiter_credit(struct shmq_waiter *subscription);

/* Serves the session's waiters again that were passed over. */
void shmq_waiters_unblock(struct shmq_session *session);

/* Ends the session's CONSUMEs whose time is over; returns when the next one's is. */
int64_t shmq_waiters_expire(struct shmq_session *session, int64_t now);

/* Refuses those that end with their search and cannot have the lock for it. */
void shmq_waiters_refuse(struct shmq_attached_queue *attached_queue);

/* End all waiters of the session, or of the attached queue: answered with that status, or not if it
 * is OK. */
void shmq_waiters_leave(struct shmq_session *session, uint16_t status);
void shmq_waiters_end(struct shmq_attached_queue *attached_queue, uint16_t status);

#endif
