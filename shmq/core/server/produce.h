/* PRODUCE and PRODUCE_BATCH. */
#ifndef SHMQ_SERVER_PRODUCE_H
#define SHMQ_SERVER_PRODUCE_H

#include "server/session.h"

/* Carries the frame out, and those behind it that are PRODUCEs to the same queue. */
void shmq_carry_out_produce(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload, struct shmq_frames *frames);

void shmq_carry_out_batch(struct shmq_session *session, const struct shmq_frame *frame,
                          const unsigned char *payload);

/* Refuses a PRODUCE or a PRODUCE_BATCH whose answer is to come from the disk with SHUTTING_DOWN,
 * behind what was promised before: whether it was one. */
bool shmq_refuse_durable(struct shmq_session *session, const struct shmq_frame *frame,
                         const unsigned char *payload);

#endif
