/* The engine: all sessions of a process, and what they share. */
#ifndef SHMQ_SERVER_ENGINE_H
#define SHMQ_SERVER_ENGINE_H

#include "server/server.h"

/* False if there is no memory. */
bool shmq_engine_begin(struct shmq_engine *engine, const struct shmq_hooks *hooks, void *data,
                       const struct shmq_limits *limits);

/* Ends all sessions, and leaves all queues. */
void shmq_engine_end(struct shmq_engine *engine);

/* After each call that may have changed something: looks after the attached queues that were
 * touched. */
void shmq_engine_settle(struct shmq_engine *engine);

/* The next session that has something to send, or to do, and was not told of: NULL if there
 * is none. */
struct shmq_session *shmq_engine_next_pending(struct shmq_engine *engine);

/* Ends waits and sessions whose time is over, and gives back the credit of leases that ran
 * out: when to call it again, monotonic ns. */
int64_t shmq_engine_tick(struct shmq_engine *engine, int64_t now);

/* From now on nothing new is begun: requests that wait are answered so. */
void shmq_engine_drain(struct shmq_engine *engine);

/* A HELLO has changed what it may do: its rights are asked for anew. */
void shmq_session_renew_rights(struct shmq_session *session);

#endif
