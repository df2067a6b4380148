/* Waiters: CONSUMEs whose wait is not over, and subscriptions. */
#ifndef SHMQ_SERVER_WAITERS_H
#define SHMQ_SERVER_WAITERS_H

#include "server/server.h"

/* What a CONSUME or a SUBSCRIBE asks for. */
struct shmq_consume_request {
    uint32_t id;
    uint32_t most;  /* messages, or the credit                                         */
    int64_t until;  /* of a CONSUME: monotonic ns; 0: it does not wait                 */
    bool subscribes;
    bool settled;
    bool tells;     /* by HANDED what the application gets                             */
    const unsigned char *where;  /* an expression, or NULL                               */
    uint16_t where_bytes;
    struct shmq_filter_request *filtered; /* what that was compiled to: the waiter's from then on */
};

/* A waiter of the session, not in the queue of its attached queue yet; NULL without memory: then
 * the filter is freed. */
struct shmq_waiter *shmq_waiter_begin(struct shmq_queue_session *queue_session,
                                      const struct shmq_consume_request *request);

/* It ends; one that has leases is freed with its last. shmq_waiter_answer: with that status, unless
 * it is OK. */
void shmq_waiter_end(struct shmq_waiter *w);
void shmq_waiter_answer(struct shmq_waiter *w, uint16_t status);

/* Enters the queue of its attached queue, at the end, and leaves it. */
void shmq_waiter_enqueue(struct shmq_waiter *w);
void shmq_waiter_dequeue(struct shmq_waiter *w);

static inline bool shmq_waiter_has_credit(const struct shmq_waiter *w)
{
    return !w->subscribes || w->settled || w->used < w->most;
}

/* Whether its filter has not come to the end of the queue yet. */
static inline bool shmq_waiter_searches(const struct shmq_waiter *w)
{
    return w->filtered && w->filtered->searches;
}

/* The session's subscription of that id, or NULL. */
struct shmq_waiter *shmq_subscription(struct shmq_session *session, uint32_t id);

/* Ends it; what it has leased stays leased. */
void shmq_unsubscribe(struct shmq_waiter *subscription);

/* The application has got the first `count` of the subscription's messages, or is about to. */
void shmq_waiter_handed(struct shmq_waiter *subscription, uint32_t count);

/* One of the subscription's held leases is over; an ended one is freed with its last. */
void shmq_waiter_credit(struct shmq_waiter *subscription);

/* Those of the session that were passed over get their turns again. */
void shmq_waiters_unblock(struct shmq_session *session);

/* Ends the CONSUMEs of the session whose time is over: when the next one's is. */
int64_t shmq_waiters_expire(struct shmq_session *session, int64_t now);

/* Those that end with their search, and cannot have the lock for it, are refused. */
void shmq_waiters_refuse(struct shmq_attached_queue *attached_queue);

/* All of the session, or of the attached queue, end: answered with that status, or not if it is
 * OK. */
void shmq_waiters_leave(struct shmq_session *session, uint16_t status);
void shmq_waiters_end(struct shmq_attached_queue *attached_queue, uint16_t status);

#endif
