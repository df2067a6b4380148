/* PRODUCE and PRODUCE_BATCH. */
#ifndef SHMQ_SERVER_PRODUCE_H
#define SHMQ_SERVER_PRODUCE_H

#include "server/session.h"

/* Carries out the frame, and following PRODUCEs to the same queue. */
void shmq_carry_out_produce(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload, struct shmq_frames *frames);

void shmq_carry_out_batch(struct shmq_session *session, const struct shmq_frame *frame,
                          const unsigned char *payload);

/* Refuses a PRODUCE or PRODUCE_BATCH that wants a durable reply with SHUTTING_DOWN, after all
 * earlier durable replies; whether the frame was one. */
bool shmq_refuse_durable(struct shmq_session *session, const struct shmq_frame *frame,
                         const unsigned char *payload);

#endif
