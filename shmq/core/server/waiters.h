/* Those who wait for messages: CONSUMEs whose wait is not over, and subscriptions. */
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

/* Answers a CONSUME at once, or lets it wait; begins a subscription. */
void shmq_wait(struct shmq_queue_session *queue_session,
               const struct shmq_consume_request *request);

/* The session's subscription of that id, or NULL. */
struct shmq_waiter *shmq_subscription(struct shmq_session *session, uint32_t id);

/* Ends it; what it has leased stays leased. */
void shmq_unsubscribe(struct shmq_waiter *subscription);

/* The application has got the first `count` of the subscription's messages, or is about to. */
void shmq_waiter_handed(struct shmq_waiter *subscription, uint32_t count);

/* One of the subscription's held leases is over; an ended one is freed with its last. */
void shmq_waiter_credit(struct shmq_waiter *subscription);

/* Gives what there is to those who wait at the attached queue for whatever it is: whether anybody
 * still waits for that. */
bool shmq_attached_queue_serve(struct shmq_attached_queue *attached_queue);

/* The same for those who want something: all of them if something has `arrived`, else those
 * who have not looked since they began to wait. */
bool shmq_attached_queue_serve_filtered(struct shmq_attached_queue *attached_queue, bool arrived);

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
