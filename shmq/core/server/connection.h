/* A connection: the frames of a session, in and out, without I/O. */
#ifndef SHMQ_SERVER_CONNECTION_H
#define SHMQ_SERVER_CONNECTION_H

#include "server/session.h"

/* A new connection, or NULL if there is no memory. */
struct shmq_session *shmq_session_begin(struct shmq_engine *engine, void *data);

/* Where the next bytes from the peer go, and how many at most. NULL: none are taken now,
 * shmq_session_is_paused says why, or it is over. */
unsigned char *shmq_session_space(struct shmq_session *session, size_t *size);

/* So many were put there: carries out what is whole. Afterwards shmq_engine_settle. */
void shmq_session_received(struct shmq_session *session, size_t size);

/* Keeps bytes that came all the same while the session is paused. False if there is no
 * memory. */
bool shmq_session_hold(struct shmq_session *session, const void *bytes, size_t size);

/* So much of the outbox was sent. */
void shmq_session_sent(struct shmq_session *session, size_t size);

/* The peer sends no more: whole frames are carried out, waiting ones end. */
void shmq_session_finish(struct shmq_session *session);

/* The connection is gone: its leases go back, and `session` is no more. */
void shmq_session_end(struct shmq_session *session);

/* Whether nothing is to be received until something was sent, or is on disk. */
static inline bool shmq_session_is_paused(const struct shmq_session *session)
{
    return session->finished ? session->durable_reply_count > 0 : session->held;
}

/* Whether no more will be sent than is there. */
static inline bool shmq_session_is_ending(const struct shmq_session *session)
{
    return session->finished && !session->durable_reply_count;
}

/* Writes a REPLY whose payload says why; from 0x8000 on nothing more is carried out. */
void shmq_refuse(struct shmq_session *session, uint32_t id, uint16_t status, const char *why);

/* Goes on with frames that were held back, unless there still is a reason to. */
void shmq_session_go_on(struct shmq_session *session);

#endif
