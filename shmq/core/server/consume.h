/* CONSUME, SUBSCRIBE and UNSUBSCRIBE, and serving the waiters. */
#ifndef SHMQ_SERVER_CONSUME_H
#define SHMQ_SERVER_CONSUME_H

#include "server/server.h"

void shmq_carry_out_consume(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload);
void shmq_carry_out_unsubscribe(struct shmq_session *session, const struct shmq_frame *frame,
                                const unsigned char *payload);

/* HANDED has no reply, because a subscription that it names may have ended meanwhile. */
void shmq_carry_out_handed(struct shmq_session *session, const struct shmq_frame *frame,
                           const unsigned char *payload);

/* Delivers to the waiters without a filter, in their order; whether any of them still waits. */
bool shmq_attached_queue_serve(struct shmq_attached_queue *attached_queue);

/* Delivers to the waiters with a filter: to all of them if a message has `arrived`, else to those
 * that have not searched since they began to wait. Returns whether any of them still waits. */
bool shmq_attached_queue_serve_filtered(struct shmq_attached_queue *attached_queue, bool arrived);

#endif
