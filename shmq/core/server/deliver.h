/* Leasing messages, and writing them as DELIVERs. */
#ifndef SHMQ_SERVER_DELIVER_H
#define SHMQ_SERVER_DELIVER_H

#include "server/server.h"

/* Leases up to `most` messages for the waiter, fewer if much output is pending, and writes them;
 * returns how many. `outcome`: of the last lease. `whole`: the whole queue is locked, so that
 * SHMQ_EMPTY is final. The last message of a CONSUME is marked as such. */
uint32_t shmq_deliver(struct shmq_waiter *waiter, uint32_t most, bool whole, int *outcome);

/* Whether the session can accept messages now. */
bool shmq_may_deliver(const struct shmq_session *session);

/* Writes a copy of a message, which cannot settle anything; `more`: others follow. */
void shmq_deliver_copy(struct shmq_session *session, uint32_t id, const struct shmq_view *view,
                       bool more);

#endif
