/* The engine: all sessions of a process, and their shared state. */
#pragma once

#include "server/server.h"

/* False: out of memory. */
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

/* ---- connection.c: the incoming and outgoing frames of a session, without I/O ---- */

/* A new connection, or NULL if out of memory. */
struct shmq_session *shmq_session_begin(struct shmq_engine *engine, void *data);

/* The place for the next bytes from the peer, and the most of them. NULL: none are accepted now,
 * for the reason that shmq_session_is_paused tells, or the session is over. */
unsigned char *shmq_session_space(struct shmq_session *session, size_t *size);

/* Carries out the whole frames after `size` bytes were put there. Call shmq_engine_settle next. */
void shmq_session_received(struct shmq_session *session, size_t size);

/* Keeps bytes that arrived although the session is paused. False: out of memory. */
bool shmq_session_hold(struct shmq_session *session, const void *bytes, size_t size);

/* Notes that `size` bytes of the outbox were sent. */
void shmq_session_sent(struct shmq_session *session, size_t size);

/* The peer sends no more: carries out whole frames, and ends waiting requests. */
void shmq_session_finish(struct shmq_session *session);

/* The connection is gone: returns its leases, and frees `session`. */
void shmq_session_end(struct shmq_session *session);

/* Whether nothing may be received until output was sent, or is on disk. */
static inline bool shmq_session_is_paused(const struct shmq_session *session)
{
    return session->finished ? session->durable_reply_count > 0 : session->held;
}

/* Whether nothing will be sent beyond the present output. */
static inline bool shmq_session_is_ending(const struct shmq_session *session)
{
    return session->finished && !session->durable_reply_count;
}

/* Writes a REPLY whose payload gives the reason; from status 0x8000 on nothing more is carried
 * out. */
void shmq_refuse(struct shmq_session *session, uint32_t id, uint16_t status, const char *why);

/* Continues with frames that were held back, unless there still is a reason to. */
void shmq_session_go_on(struct shmq_session *session);
