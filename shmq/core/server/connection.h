/* Sessions: a connection's frames, in and out, without I/O. */
#ifndef SHMQ_SERVER_CONNECTION_H
#define SHMQ_SERVER_CONNECTION_H

#include "server/server.h"

/* ---- for whoever carries the bytes ---- */

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

/* The request that was parked without an attached queue is answered, or may be carried out again:
 * goes on behind it once the session is told of, see shmq_engine_next_pending. */
void shmq_unpark(struct shmq_session *session);

/* Whether no more will be sent than is there. */
static inline bool shmq_session_is_ending(const struct shmq_session *session)
{
    return session->finished && !session->durable_reply_count;
}

/* ---- for the requests ---- */

/* It ends: there is no memory for it, or its peer reads nothing. */
void shmq_session_break(struct shmq_session *session);

/* Room for `size` bytes to send, or NULL; the session is broken then. */
unsigned char *shmq_session_room(struct shmq_session *session, size_t size);

/* Writes a REPLY; message id 0 is answered, too. */
void shmq_reply(struct shmq_session *session, uint32_t id, uint16_t status, const void *payload,
                uint32_t bytes);

/* Writes a REPLY whose payload says why; from 0x8000 on nothing more is carried out. */
void shmq_refuse(struct shmq_session *session, uint32_t id, uint16_t status, const char *why);

/* The same, where an answer is wanted: message id 0 gets none. */
static inline void shmq_refuse_if_asked(struct shmq_session *session, uint32_t id, uint16_t status,
                                        const char *why)
{
    if (id)
        shmq_refuse(session, id, status, why);
}

/* What policy answers is answered later, by shmq_answer_late, and holds nothing back: false if
 * too many of the session's requests wait. Once the peer sends no more, it is not answered. */
bool shmq_answer_later(struct shmq_session *session);
void shmq_answer_late(struct shmq_session *session, uint32_t id, uint16_t status,
                      const void *payload, uint32_t bytes);

/* Goes on with frames that were held back, unless there still is a reason to. */
void shmq_session_go_on(struct shmq_session *session);

/* There is something to send, or to do, for it. */
void shmq_mark_pending(struct shmq_session *session);

/* Frames that follow each other in what was received. */
struct shmq_frames {
    const unsigned char *at, *end;
};

/* Nothing that follows is carried out until shmq_unpark. */
void shmq_park(struct shmq_session *session);

/* The same, and the frame that is being carried out is put back: it is carried out again then.
 * `at`: so is what was read behind it, from there on; NULL: it was the last. Until its end no
 * answer is written. */
void shmq_put_back(struct shmq_session *session, const unsigned char *at);

/* The request cannot have the attached queue's lock: it is put back until the lock is free. False
 * if that was waited for long enough: the request is to be refused with SHMQ_S_BUSY. */
bool shmq_park_at(struct shmq_session *session, struct shmq_attached_queue *attached_queue,
                  const unsigned char *at);

/* Whether the next frame is whole and one of that type, with a good header. */
bool shmq_next_is(const struct shmq_session *session, const struct shmq_frames *frames,
                  uint8_t type, struct shmq_frame *frame);

#endif
