/* PRODUCE and PRODUCE_BATCH. */
#ifndef SHMQ_SERVER_PRODUCE_H
#define SHMQ_SERVER_PRODUCE_H

#include "server/attached_queue.h"
#include "server/connection.h"

/* Carries the frame out, and those behind it that are PRODUCEs to the same queue. */
void shmq_carry_out_produce(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload, struct shmq_frames *frames);

void shmq_carry_out_batch(struct shmq_session *session, const struct shmq_frame *frame,
                          const unsigned char *payload);

/* Refuses a PRODUCE or a PRODUCE_BATCH whose answer is to come from the disk with SHUTTING_DOWN,
 * behind what was promised before: whether it was one. */
bool shmq_refuse_durable(struct shmq_session *session, const struct shmq_frame *frame,
                         const unsigned char *payload);

/* ---- its steps, for a body that is still to come ---- */

/* Reads flags and properties: NULL, or what is wrong with their form. */
const char *shmq_read_item(struct shmq_reader *r, struct shmq_item *item);

/* Refuses what is not for this queue or out of range: whether it may be put. */
bool shmq_admit_item(const struct shmq_queue_session *queue_session, struct shmq_item *item);

/* What became of it; `attached queue`: where it was put, or NULL. What is to be on disk is
 * answered then. */
void shmq_answer_item(struct shmq_session *session, struct shmq_attached_queue *attached_queue,
                      const struct shmq_item *item);

#endif
