/* LEASE_RUN and LEASE_AGAIN: many messages leased at once, by numbers alone. */
#ifndef SHMQ_RUNS_H
#define SHMQ_RUNS_H

#include "session.h"

void shmq_carry_out_run(struct shmq_session *session, const struct shmq_frame *frame,
                        const unsigned char *payload);

#endif
