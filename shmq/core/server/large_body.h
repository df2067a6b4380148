/* Large bodies: received into the queue itself, from the first byte behind the properties
 * on. */
#ifndef SHMQ_SERVER_LARGE_BODY_H
#define SHMQ_SERVER_LARGE_BODY_H

#include "server/session.h"

/* The frame that begins at frames->at, with a good header, is not whole. If it is a PRODUCE
 * of a large body, and all before the body is there: takes all that is there, and true. */
bool shmq_large_body_begin(struct shmq_session *session, const struct shmq_frame *frame,
                           struct shmq_frames *frames);

/* Where the next bytes of the body go. */
unsigned char *shmq_large_body_space(struct shmq_session *session, size_t *size);

/* So many came: whether the frame was whole with them, and is answered. */
bool shmq_large_body_received(struct shmq_session *session, size_t size);

/* The rest will not come: the space is given back. */
void shmq_large_body_drop(struct shmq_session *session);

/* Puts a large body that is there, and copies it without the lock: sets the item's status. */
void shmq_put_large(struct shmq_attached_queue *attached_queue, struct shmq_item *item);

#endif
