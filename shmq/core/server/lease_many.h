/* LEASE_RUN and LEASE_AGAIN: many messages leased at once, as numbers without their bytes. */
#ifndef SHMQ_SERVER_LEASE_MANY_H
#define SHMQ_SERVER_LEASE_MANY_H

#include "server/session.h"

void shmq_carry_out_run(struct shmq_session *session, const struct shmq_frame *frame,
                        const unsigned char *payload);

#endif
