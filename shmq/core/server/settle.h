/* ACK, NACK, REJECT, EXTEND and RETURN. */
#ifndef SHMQ_SERVER_SETTLE_H
#define SHMQ_SERVER_SETTLE_H

#include "server/session.h"

/* Carries the frame out, and with an ACK those behind it that are ACKs of the same queue. */
void shmq_carry_out_settle(struct shmq_session *session, const struct shmq_frame *frame,
                           const unsigned char *payload, struct shmq_frames *frames);

/* Forgets how far a settlement had come that was put back, and is not to be carried out. */
void shmq_settle_anew(struct shmq_session *session);

#endif
