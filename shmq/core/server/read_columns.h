/* COLUMNS and READ_RUN: messages as columns, read without leasing. */
#ifndef SHMQ_SERVER_READ_COLUMNS_H
#define SHMQ_SERVER_READ_COLUMNS_H

#include "server/session.h"

void shmq_carry_out_reading(struct shmq_session *session, const struct shmq_frame *frame,
                            const unsigned char *payload);

#endif
