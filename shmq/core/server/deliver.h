/* Leasing messages, and writing them as DELIVERs. */
#ifndef SHMQ_SERVER_DELIVER_H
#define SHMQ_SERVER_DELIVER_H

#include "server/server.h"

/* Leases up to `most` messages for the waiter, fewer if there is much to send already, and
 * writes them: how many. `outcome`: of the last lease. `whole`: of the whole queue, so that
 * SHMQ_EMPTY is a verdict. The last of a CONSUME's is marked as such. */
uint32_t shmq_deliver(struct shmq_waiter *waiter, uint32_t most, bool whole, int *outcome);

/* Whether the session can take messages now. */
bool shmq_may_deliver(const struct shmq_session *session);

/* Writes a copy of a message, which can settle nothing; `more`: others follow. */
void shmq_deliver_copy(struct shmq_session *session, uint32_t id, const struct shmq_view *view,
                       bool more);

#endif
