/* Large bodies: received directly into the queue, from the first byte behind the properties on. */
#ifndef SHMQ_SERVER_LARGE_BODY_H
#define SHMQ_SERVER_LARGE_BODY_H

#include "server/session.h"

/* The frame that begins at frames->at, whose header is valid, is incomplete. If it is a PRODUCE
 * of a large body, and everything before the body is there: takes what is there, and returns
 * true. */
bool shmq_large_body_begin(struct shmq_session *session, const struct shmq_frame *frame,
                           struct shmq_frames *frames);

/* The place for the next bytes of the body. */
unsigned char *shmq_large_body_space(struct shmq_session *session, size_t *size);

/* Counts `size` received bytes; whether they completed the frame, which is then answered. */
bool shmq_large_body_received(struct shmq_session *session, size_t size);

/* The rest will not come: releases the space. */
void shmq_large_body_drop(struct shmq_session *session);

/* Puts a large body that is complete, and copies it without the lock: sets the item's status. */
void shmq_put_large(struct shmq_attached_queue *attached_queue, struct shmq_item *item);

#endif
