/* Held leases: which messages a session has leased, so that they go back with its connection,
 * and take up no credit once they are settled, by whomever. */
#ifndef SHMQ_SERVER_LEASE_TABLE_H
#define SHMQ_SERVER_LEASE_TABLE_H

#include "server/server.h"

/* The queue session's session has leased the message. */
void shmq_held_lease_begin(struct shmq_queue_session *queue_session, const struct shmq_view *view,
                           struct shmq_waiter *of);

/* The lease of that receipt, if it is one of this engine's, is over. */
void shmq_held_lease_end(struct shmq_attached_queue *attached_queue, uint64_t receipt);

/* Those of the session go back to their queues. */
void shmq_held_leases_return(struct shmq_session *session);

/* Ends those of the session whose leases have run out, or were settled elsewhere. */
void shmq_held_leases_review(struct shmq_session *session, int64_t now);

/* The queue is gone, and all leases with it. */
void shmq_held_leases_void(struct shmq_attached_queue *attached_queue);

/* How many messages more the session may lease, and of how many bytes: the last one may go
 * beyond those. */
uint32_t shmq_lease_room(const struct shmq_session *session, uint64_t *bytes);

#endif
