/* ACK, NACK, REJECT, EXTEND and RETURN. */
#ifndef SHMQ_SERVER_SETTLE_H
#define SHMQ_SERVER_SETTLE_H

#include "server/session.h"

/* Carries out the frame; after an ACK also the following ACKs of the same queue. */
void shmq_carry_out_settle(struct shmq_session *session, const struct shmq_frame *frame,
                           const unsigned char *payload, struct shmq_frames *frames);

/* Forgets the progress of a settlement that was put back and will not be carried out. */
void shmq_settle_anew(struct shmq_session *session);

#endif
