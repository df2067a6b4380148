/* Held leases: which messages a session has leased, so that they return when its connection ends,
 * and use no credit once they are settled, by any process. */
#ifndef SHMQ_SERVER_LEASE_TABLE_H
#define SHMQ_SERVER_LEASE_TABLE_H

#include "server/server.h"

/* The session of the queue session has leased the message. */
void shmq_held_lease_begin(struct shmq_queue_session *queue_session, const struct shmq_view *view,
                           struct shmq_waiter *of);

/* The lease of that receipt is over, if it is this engine's. */
void shmq_held_lease_end(struct shmq_attached_queue *attached_queue, uint64_t receipt);

/* Returns the session's leases to their queues. */
void shmq_held_leases_return(struct shmq_session *session);

/* Ends the session's held leases that have run out, or were settled elsewhere. */
void shmq_held_leases_review(struct shmq_session *session, int64_t now);

/* The queue is gone, and all its leases with it. */
void shmq_held_leases_void(struct shmq_attached_queue *attached_queue);

/* How many more messages the session may lease, and how many bytes: the last message may exceed
 * those. */
uint32_t shmq_lease_room(const struct shmq_session *session, uint64_t *bytes);

#endif
