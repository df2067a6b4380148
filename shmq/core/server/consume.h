/* CONSUME, SUBSCRIBE and UNSUBSCRIBE. */
#ifndef SHMQ_SERVER_CONSUME_H
#define SHMQ_SERVER_CONSUME_H

#include "server/server.h"

void shmq_carry_out_consume(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload);
void shmq_carry_out_unsubscribe(struct shmq_session *session, const struct shmq_frame *frame,
                                const unsigned char *payload);

/* HANDED has no answer: a subscription that it names may have ended meanwhile. */
void shmq_carry_out_handed(struct shmq_session *session, const struct shmq_frame *frame,
                           const unsigned char *payload);

#endif
