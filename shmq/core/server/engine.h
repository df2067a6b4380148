/* The engine: all sessions of a process, and their shared state. */
#ifndef SHMQ_SERVER_ENGINE_H
#define SHMQ_SERVER_ENGINE_H

#include "server/server.h"

/* False if there is no memory. */
bool shmq_engine_begin(struct shmq_engine *engine, const struct shmq_hooks *hooks, void *data,
                       const struct shmq_limits *limits);

/* Ends all sessions, and leaves all queues. */
void shmq_engine_end(struct shmq_engine *engine);

/* Serves the attached queues that were touched. Call it after each call that may have changed
 * something. */
void shmq_engine_settle(struct shmq_engine *engine);

/* The next session that has output, or must be closed, and was not reported yet: NULL if there is
 * none. */
struct shmq_session *shmq_engine_next_pending(struct shmq_engine *engine);

/* Ends waits and sessions whose time is over, and returns the credit of leases that ran out.
 * Returns when to call it again, monotonic ns. */
int64_t shmq_engine_tick(struct shmq_engine *engine, int64_t now);

/* Begins nothing new from now on; waiting requests are answered accordingly. */
void shmq_engine_drain(struct shmq_engine *engine);

/* A HELLO has changed the session's rights: policy is asked for them again. */
void shmq_session_renew_rights(struct shmq_session *session);

#endif
